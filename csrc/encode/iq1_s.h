/* iq1_s: groups of 32, four rows of the grid each, with one delta. Needs an importance matrix. */
#pragma once
#include "encode.h"
#include "shared/iq1_groups.h"

enum { IQ1_S_AT_ONCE = CBQ_LANES > 8 ? CBQ_LANES / 8 : 1 }; /* superblocks, so that their groups fill the lanes */

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

CBQ_FN void iq1_s_finish(const uint16_t rows[32], const uint8_t minus[32], const float scales[8], uint8_t *to) {
    cbq_iq1_s_block *out = (cbq_iq1_s_block *)to;
    uint8_t codes[8] = {0}, of_groups[8] = {0};
    float largest_scale = 0;
    for (int g = 0; g < 8; g++) largest_scale = scales[g] > largest_scale ? scales[g] : largest_scale;
    if (largest_scale == 0) {
        cbq_iq1_s_pack(out, rows, of_groups, codes, 0);
        return;
    }
    const float d = largest_scale / 15;
    for (int g = 0; g < 8; g++) of_groups[g] = minus[4 * g];
    iq1_scale_codes(scales, 8, d, codes);
    cbq_iq1_s_pack(out, rows, of_groups, codes, cbq_f32_to_f16(d * 1.125f));
}

static int encode_iq1_s(const cbq_encode_args *a) {
    const cbq_neighbours *t = cbq_neighbours_of(CBQ_GRID_IQ1);
    if (!t) return -1;
    float sums[CBQ_LANES], x[256 * IQ1_S_AT_ONCE], w[256 * IQ1_S_AT_ONCE], scales[8 * IQ1_S_AT_ONCE];
    uint16_t rows[32 * IQ1_S_AT_ONCE];
    uint8_t minus[32 * IQ1_S_AT_ONCE];
    for (int64_t i = 0; i < a->n; i += IQ1_S_AT_ONCE) {
        superblock s[IQ1_S_AT_ONCE];
        if (i % CBQ_LANES == 0) sums_of_squares(a->x + 256 * i, a->n - i, sums);
        for (int k = 0; k < IQ1_S_AT_ONCE; k++) {
            const int64_t place = i + k < a->n ? i + k : a->n - 1; /* the last one twice, where their number is odd */
            s[k] = superblock_at(a, sizeof(cbq_iq1_s_block), place, sums[place % CBQ_LANES]);
            memcpy(x + 256 * k, s[k].x, 256 * sizeof(float));
            weights_of(s[k].x, s[k].importance, 2 * s[k].sum_of_squares / 256, 256, w + 256 * k);
        }
        for (int g = 0; g < 8 * IQ1_S_AT_ONCE; g += CBQ_LANES)
            iq1_fit(t, x + 32 * g, w + 32 * g, 32, 1e-12f, iq1_s_search, (iq1_fitted){rows + 4 * g, minus + 4 * g, scales + g});
        for (int k = 0; k < IQ1_S_AT_ONCE && i + k < a->n; k++)
            iq1_s_finish(rows + 32 * k, minus + 32 * k, scales + 8 * k, s[k].out);
    }
    return 0;
}
