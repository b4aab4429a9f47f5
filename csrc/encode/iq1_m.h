/* iq1_m: groups of 16, two rows of the grid each, with a delta of their own. */
#pragma once
#include "encode.h"
#include "shared/iq1_groups.h"

/* For each element in order, code and choice of the two deltas: what it adds to the sums of w q x and w q q. */
typedef struct {
    float qx[3][16][4][CBQ_LANES], q2[3][16][4][CBQ_LANES];
} __attribute__((aligned(64))) iq1_m_terms;

static void iq1_m_fill_terms(const iq1_lanes *sorted, iq1_m_terms *to) {
    for (int i = 0; i < 16; i++) {
        const F x = f_ld(sorted->x[i]), w = f_ld(sorted->w[i]);
        const M is_first = m_lt(f_ld(sorted->place[i]), f_set1(8));
        for (int code = 0; code < 3; code++) {
            F qx[2], q2[2];
            for (int minus = 0; minus < 2; minus++) {
                const F q = f_set1(iq1_levels[minus][code]), wq = f_mul(w, q);
                qx[minus] = f_mul(wq, x), q2[minus] = f_mul(wq, q);
            }
            for (int deltas = 0; deltas < 4; deltas++) {
                f_st_f32(to->qx[code][i][deltas], f_select(is_first, qx[deltas >> 1], qx[deltas & 1]));
                f_st_f32(to->q2[code][i][deltas], f_select(is_first, q2[deltas >> 1], q2[deltas & 1]));
            }
        }
    }
}

CBQ_FN void iq1_m_add(F qx[4], F q2[4], const iq1_m_terms *t, int code, int i) {
    CBQ_UNROLL_ALL
    for (int deltas = 0; deltas < 4; deltas++) {
        qx[deltas] = f_add(qx[deltas], f_ld(t->qx[code][i][deltas]));
        q2[deltas] = f_add(q2[deltas], f_ld(t->q2[code][i][deltas]));
    }
}

CBQ_FN void iq1_m_try(const F qx[4], const F q2[4], int i, int k, iq1_best *best) {
    M better = iq1_is_better(best, qx[0], q2[0]);
    for (int deltas = 1; deltas < 4; deltas++) better = m_or(better, iq1_is_better(best, qx[deltas], q2[deltas]));
    if (!m_any(better)) return; /* most of the time */
    for (int deltas = 0; deltas < 4; deltas++) iq1_take_better(best, qx[deltas], q2[deltas], iq1_split(i, k, deltas));
}

/* Sums are those of the elements in order: codes 0, then 1, then 2. The beginning is shared, the rest is added anew. */
static void iq1_m_search(const iq1_lanes *sorted, iq1_best *best) {
    iq1_m_terms t;
    iq1_m_fill_terms(sorted, &t);
    F low_qx[4], low_q2[4];
    for (int deltas = 0; deltas < 4; deltas++) low_qx[deltas] = low_q2[deltas] = f_zero();
    for (int i = 0; i <= 16; i++) {
        F middle_qx[4], middle_q2[4];
        memcpy(middle_qx, low_qx, sizeof low_qx), memcpy(middle_q2, low_q2, sizeof low_q2);
        for (int k = i; k <= 16; k++) {
            F qx[4], q2[4];
            memcpy(qx, middle_qx, sizeof qx), memcpy(q2, middle_q2, sizeof q2);
            for (int j = k; j < 16; j++) iq1_m_add(qx, q2, &t, 2, j);
            iq1_m_try(qx, q2, i, k, best);
            if (k < 16) iq1_m_add(middle_qx, middle_q2, &t, 1, k);
        }
        if (i < 16) iq1_m_add(low_qx, low_q2, &t, 0, i);
    }
}

CBQ_FN void iq1_m_weights(const superblock *s, float *w) {
    if (s->importance) {
        weights_of(s->x, s->importance, 2 * s->sum_of_squares / 256, 256, w);
        return;
    }
    for (int i = 0; i < 256; i += CBQ_LANES) {
        F v = f_ld(s->x + i);
        f_st_f32(w + i, f_mul(v, v));
    }
}

/* The best d for the codes of all elements, or d where weights are zero. */
CBQ_FN float iq1_m_fitted_d(const cbq_neighbours *t, const float *x, const float *w, iq1_fitted f, const uint8_t scales[16], float d) {
    float qx = 0, q2 = 0;
    for (int i = 0; i < 256; i++) {
        const int word = t->grid[f.rows[i / 8]];
        const float q = iq1_levels[f.minus[i / 8]][word >> 2 * (i & 7) & 3] * (float)(2 * scales[i / 16] + 1), wq = w[i] * q;
        qx += wq * x[i];
        q2 += wq * q;
    }
    return q2 > 0 ? qx / q2 : d;
}

static void encode_iq1_m_superblock(const superblock *s, const cbq_neighbours *t) {
    float w[256], scales[16], largest_scale = 0;
    uint16_t rows[32];
    uint8_t minus[32], codes[16] = {0};
    iq1_m_weights(s, w);
    for (int g = 0; g < 16; g += CBQ_LANES)
        iq1_fit(t, s->x + 16 * g, w + 16 * g, 16, 1e-7f, iq1_m_search, (iq1_fitted){rows + 2 * g, minus + 2 * g, scales + g});
    for (int g = 0; g < 16; g++) largest_scale = scales[g] > largest_scale ? scales[g] : largest_scale;
    cbq_iq1_m_block *out = (cbq_iq1_m_block *)s->out;
    if (largest_scale == 0) {
        memset(minus, 0, sizeof minus);
        cbq_iq1_m_pack(out, rows, minus, codes, 0);
        return;
    }
    float d = largest_scale / 15;
    iq1_scale_codes(scales, 16, d, codes);
    d = iq1_m_fitted_d(t, s->x, w, (iq1_fitted){rows, minus, scales}, codes, d);
    cbq_iq1_m_pack(out, rows, minus, codes, cbq_f32_to_f16(d * 1.1125f));
}

static int encode_iq1_m(const cbq_encode_args *a) {
    return each_superblock(a, sizeof(cbq_iq1_m_block), CBQ_GRID_IQ1, encode_iq1_m_superblock);
}
