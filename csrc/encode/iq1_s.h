/* iq1_s: groups of 32, four rows of the grid each, with one delta. Needs an importance matrix. */
#pragma once
#include "encode.h"
#include "shared/iq1_groups.h"

/* Sums over the elements in order, from the first to each place; and for each place, what the elements from there on add to
   the sums of w q x and w q q as code 2, with either delta. */
typedef struct {
    float wx[33][CBQ_LANES], w[33][CBQ_LANES];
    float high_qx[2][33][CBQ_LANES], high_q2[2][33][CBQ_LANES];
} __attribute__((aligned(64))) iq1_s_sums;

static void iq1_s_fill_sums(const iq1_lanes *sorted, iq1_s_sums *to) {
    F wx = f_zero(), w = f_zero();
    for (int i = 0;; i++) {
        f_st_f32(to->wx[i], wx);
        f_st_f32(to->w[i], w);
        if (i == 32) break;
        wx = f_add(wx, f_mul(f_ld(sorted->w[i]), f_ld(sorted->x[i])));
        w = f_add(w, f_ld(sorted->w[i]));
    }
    for (int i = 0; i <= 32; i++)
        for (int minus = 0; minus < 2; minus++) {
            const F q = f_set1(iq1_levels[minus][2]);
            f_st_f32(to->high_qx[minus][i], f_mul(f_sub(wx, f_ld(to->wx[i])), q));
            f_st_f32(to->high_q2[minus][i], f_mul(f_mul(f_sub(w, f_ld(to->w[i])), q), q));
        }
}

static void iq1_s_search(const iq1_lanes *sorted, iq1_best *best) {
    iq1_s_sums s;
    iq1_s_fill_sums(sorted, &s);
    const F p = f_set1(iq1_levels[0][0]), m = f_set1(iq1_levels[1][0]), eighth = f_set1(0.125f);
    for (int i = 0; i <= 32; i++) {
        const F wx = f_ld(s.wx[i]), w = f_ld(s.w[i]);
        const F p_qx = f_mul(wx, p), p_q2 = f_mul(f_mul(w, p), p), m_qx = f_mul(wx, m), m_q2 = f_mul(f_mul(w, m), m);
        for (int k = i; k <= 32; k++) {
            /* code 1 stands for 1/8 or -1/8: the products differ in their sign only */
            const F qx = f_mul(f_sub(f_ld(s.wx[k]), wx), eighth), q2 = f_mul(f_mul(f_sub(f_ld(s.w[k]), w), eighth), eighth);
            const F with_p = f_add(f_add(p_qx, qx), f_ld(s.high_qx[0][k])), square_p = f_add(f_add(p_q2, q2), f_ld(s.high_q2[0][k]));
            const F with_m = f_add(f_sub(m_qx, qx), f_ld(s.high_qx[1][k])), square_m = f_add(f_add(m_q2, q2), f_ld(s.high_q2[1][k]));
            if (!m_any(m_or(iq1_is_better(best, with_p, square_p), iq1_is_better(best, with_m, square_m)))) continue;
            iq1_take_better(best, with_p, square_p, iq1_split(i, k, 0));
            iq1_take_better(best, with_m, square_m, iq1_split(i, k, 3));
        }
    }
}

CBQ_FN void iq1_s_finish(const iq1_fitted *f, int block, cbq_iq1_s_block *out) {
    const float *scales = f->scales + 8 * block, d = largest_scale(scales, 8) / 15;
    uint8_t codes[8] = {0}, minus[8] = {0};
    if (largest_scale(scales, 8) > 0) {
        codes_of_scales(scales, 8, d, 7, codes);
        for (int g = 0; g < 8; g++) minus[g] = f->minus[32 * block + 4 * g];
    }
    cbq_iq1_s_pack(out, f->rows + 32 * block, minus, codes, cbq_f32_to_f16(d * 1.125f));
}

static void encode_iq1_s_superblocks(const superblocks *s, const cbq_neighbours *t) {
    float w[CBQ_TILE_ELEMENTS] __attribute__((aligned(64)));
    iq1_fitted fitted;
    for (int b = 0; b < s->n; b++) weights_of(s->x + 256 * b, s->importance[b], 2 * s->sum_of_squares[b] / 256, 256, w + 256 * b);
    iq1_fit_all(t, s->x, w, s->n, 32, 1e-12f, iq1_s_search, &fitted);
    for (int b = 0; b < s->n; b++) iq1_s_finish(&fitted, b, (cbq_iq1_s_block *)s->out + b);
}

static int encode_iq1_s(const cbq_encode_args *a) {
    return each_superblocks(a, sizeof(cbq_iq1_s_block), CBQ_GRID_IQ1, encode_iq1_s_superblocks);
}
