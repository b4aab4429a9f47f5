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

static void iq1_m_weights(const superblocks *s, float *w) {
    for (int b = 0; b < s->n; b++) {
        const float *x = s->x + 256 * b;
        if (s->importance[b]) weights_of(x, s->importance[b], 2 * s->sum_of_squares[b] / 256, 256, w + 256 * b);
        for (int i = 0; i < 256 && !s->importance[b]; i += CBQ_LANES) {
            F v = f_ld(x + i);
            f_st_f32(w + 256 * b + i, f_mul(v, v));
        }
    }
}

/* The best d for the codes of all elements, or d where weights are 0. */
CBQ_FN float iq1_m_fitted_d(const cbq_neighbours *t, const float *x, const float *w, const uint16_t *rows, const uint8_t *minus,
                            const uint8_t scales[16], float d) {
    float qx = 0, q2 = 0;
    for (int i = 0; i < 256; i++) {
        const float q = iq1_levels[minus[i / 8]][t->grid[rows[i / 8]] >> 2 * (i & 7) & 3] * (float)(2 * scales[i / 16] + 1), wq = w[i] * q;
        qx += wq * x[i];
        q2 += wq * q;
    }
    return q2 > 0 ? qx / q2 : d;
}

CBQ_FN void iq1_m_finish(const cbq_neighbours *t, const float *x, const float *w, iq1_fitted *f, int block, cbq_iq1_m_block *out) {
    const uint16_t *rows = f->rows + 32 * block;
    const float *scales = f->scales + 16 * block;
    uint8_t *minus = f->minus + 32 * block, codes[16] = {0};
    float d = largest_scale(scales, 16) / 15;
    if (largest_scale(scales, 16) == 0) {
        memset(minus, 0, 32);
    } else {
        codes_of_scales(scales, 16, d, 7, codes);
        d = iq1_m_fitted_d(t, x + 256 * block, w + 256 * block, rows, minus, codes, d);
    }
    cbq_iq1_m_pack(out, rows, minus, codes, cbq_f32_to_f16(d * 1.1125f));
}

static void encode_iq1_m_superblocks(const superblocks *s, const cbq_neighbours *t) {
    float w[CBQ_TILE_ELEMENTS] __attribute__((aligned(64)));
    iq1_fitted fitted;
    iq1_m_weights(s, w);
    iq1_fit_all(t, s->x, w, s->n, 16, 1e-7f, iq1_m_search, &fitted);
    for (int b = 0; b < s->n; b++) iq1_m_finish(t, s->x, w, &fitted, b, (cbq_iq1_m_block *)s->out + b);
}

static int encode_iq1_m(const cbq_encode_args *a) {
    return each_superblocks(a, sizeof(cbq_iq1_m_block), CBQ_GRID_IQ1, encode_iq1_m_superblocks);
}
