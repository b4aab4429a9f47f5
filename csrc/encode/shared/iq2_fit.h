/* How iq2_xxs, iq2_xs and iq2_s fit a group: 16 or 32 elements, two or four rows of the grid, one scale. All candidate scales
   of a group are weighed first, side by side in lanes; what follows is done for CBQ_LANES groups at a time. */
#pragma once
#include "iq2_near.h"
#include "lanes_of_groups.h"
#include "nearest_row.h"
#include "weighted.h"

static const float iq2_levels[8] = {1, 3, 5, 7, 1, 3, 5, 7}; /* of codes; twice, as the next code shifts in above two bits */

typedef struct {
    int n, steps; /* elements of a group; steps of candidate scales to either side */
    int refit;    /* rows to fit anew at the best scale: 0 those that were not on the grid, 1 all */
} iq2_shape;

/* CBQ_LANES groups: what was found for each candidate of each, and then for the best ones. */
typedef struct {
    int32_t found[CBQ_LANES][4][IQ2_MOST + 1];
    uint32_t replaced[CBQ_LANES][4];
    float qx[CBQ_LANES][IQ2_MOST], q2[CBQ_LANES][IQ2_MOST];
    int32_t words[4][CBQ_LANES];
    uint32_t off_grid[CBQ_LANES]; /* a bit for each row */
} __attribute__((aligned(64))) iq2_lanes;

/* What becomes of groups. */
typedef struct {
    uint16_t *rows;
    uint8_t *signs;
    float *scales;
} iq2_fitted;

/* Sums of w x q and w q q over 8 elements more, for each candidate. */
CBQ_FN void iq2_add_sums(int n, const int32_t *words, const float w[8], const float wx[8], float *to_qx, float *to_q2) {
    const T levels = t_load8(iq2_levels);
    for (int at = 0; at < n; at += CBQ_LANES) {
        const I word = i_ld(words + at);
        F qx = f_ld(to_qx + at), q2 = f_ld(to_q2 + at);
        CBQ_UNROLL_ALL
        for (int i = 0; i < 8; i++) {
            F q = t_pick8(levels, i_shr(word, 2 * i));
            qx = f_add(qx, f_mul(f_set1(wx[i]), q));
            q2 = f_add(q2, f_mul(f_mul(f_set1(w[i]), q), q));
        }
        f_st_f32(to_qx + at, qx);
        f_st_f32(to_q2 + at, q2);
    }
}

/* Weighs the candidates (5 + 0.1 step) / reach of one group. */
CBQ_FN void iq2_weigh_candidates(const cbq_neighbours *t, const weighted *b, int first, iq2_shape shape, iq2_candidates *c, float reach, int lane,
                                 iq2_lanes *to) {
    const int n = 2 * shape.steps + 1;
    for (int at = 0; at < n; at += CBQ_LANES) {
        F inverse = f_div(f_ld(c->numerator + at), f_set1(reach));
        f_st_f32(c->inverse + at, inverse);
        f_st_f32(c->scale + at, f_div(f_set1(1), inverse));
    }
    for (int k = 0; k < shape.n / 8; k++) {
        const int at = first + 8 * k;
        to->replaced[lane][k] = iq2_words(t, c, n, b->x + at, b->root + at, to->found[lane][k]);
        iq2_add_sums(n, to->found[lane][k], b->w + at, b->wx + at, to->qx[lane], to->q2[lane]);
    }
}

/* The best candidate of each lane, or -1, with `scale` as it was, where none is better than nothing (all weights are 0). */
CBQ_FN I iq2_best_candidates(const iq2_lanes *g, int n, F *scale) {
    float qx[IQ2_MOST * CBQ_LANES] __attribute__((aligned(64))), q2[IQ2_MOST * CBQ_LANES] __attribute__((aligned(64)));
    f_to_lanes(g->qx[0], IQ2_MOST, (n + 7) / 8 * 8, qx, CBQ_LANES);
    f_to_lanes(g->q2[0], IQ2_MOST, (n + 7) / 8 * 8, q2, CBQ_LANES);
    F score = f_zero();
    I at = i_set1(-1);
    for (int c = 0; c < n; c++) {
        const F its_qx = f_ld(qx + c * CBQ_LANES), its_q2 = f_ld(q2 + c * CBQ_LANES), its_scale = f_div(its_qx, its_q2);
        M better = m_and(m_lt(f_zero(), its_q2), m_lt(f_mul(score, its_q2), f_mul(its_qx, its_qx)));
        *scale = f_select(better, its_scale, *scale);
        score = f_select(better, f_mul(its_scale, its_qx), score);
        at = i_select(better, i_set1(c), at);
    }
    return at;
}

CBQ_FN void iq2_take_best(iq2_lanes *g, int rows, I best) {
    int32_t at[CBQ_LANES];
    i_st(at, best);
    for (int lane = 0; lane < CBQ_LANES; lane++) {
        g->off_grid[lane] = 0;
        for (int k = 0; k < rows; k++) {
            g->words[k][lane] = at[lane] < 0 ? 0 : g->found[lane][k][at[lane]];
            if (at[lane] >= 0) g->off_grid[lane] |= (g->replaced[lane][k] >> at[lane] & 1) << k;
        }
    }
}

/* Finds rows of the groups in `lanes` anew, for the scale that was best: those in g->off_grid. */
CBQ_FN void iq2_find_again(const cbq_neighbours *t, const weighted *b, int first, int n, const float *x_lanes, F scale, uint32_t lanes, iq2_lanes *g) {
    const F inverse = f_div(f_set1(1), scale);
    float scales[CBQ_LANES];
    int32_t words[CBQ_LANES];
    f_st_f32(scales, scale);
    for (int k = 0; k < n / 8; k++) {
        I word = i_set1(0);
        for (int i = 0; i < 8; i++) word = i_or(word, i_shl(iq2_nearest_code(inverse, f_ld(x_lanes + (8 * k + i) * CBQ_LANES)), 2 * i));
        i_st(words, word);
        for (int lane = 0; lane < CBQ_LANES; lane++) {
            if (!(lanes >> lane & g->off_grid[lane] >> k & 1)) continue;
            const int at = first + n * lane + 8 * k, is_on_grid = t->index[words[lane]] >= 0;
            g->words[k][lane] = is_on_grid ? words[lane] : nearest_row(t, words[lane], scales[lane], iq2_levels, b->x + at, b->root + at);
        }
    }
}

/* The best scale of each lane for its words, or `scale` where weights are 0. */
CBQ_FN F iq2_fitted_scales(const weighted *b, int first, int n, int32_t words[4][CBQ_LANES], F scale) {
    float w[32 * CBQ_LANES] __attribute__((aligned(64))), wx[32 * CBQ_LANES] __attribute__((aligned(64)));
    const T levels = t_load8(iq2_levels);
    F qx = f_zero(), q2 = f_zero();
    groups_to_lanes(b->w + first, n, 1, w);
    groups_to_lanes(b->wx + first, n, 1, wx);
    for (int i = 0; i < n; i++) {
        F q = t_pick8(levels, i_shr(i_ld(words[i / 8]), 2 * (i & 7)));
        qx = f_add(qx, f_mul(f_ld(wx + i * CBQ_LANES), q));
        q2 = f_add(q2, f_mul(f_mul(f_ld(w + i * CBQ_LANES), q), q));
    }
    return f_select(m_lt(f_zero(), q2), f_div(qx, q2), scale);
}

/* Rows, signs and scales. A negative scale becomes a positive one with the other signs. */
CBQ_FN void iq2_keep(const cbq_neighbours *t, const weighted *b, int first, int rows, F scale, uint32_t active, const iq2_lanes *g, iq2_fitted to) {
    const M negative = m_lt(scale, f_zero());
    const uint32_t flipped = m_bits(negative);
    f_st_f32(to.scales, f_where(m_of_bits(active), f_select(negative, f_neg(scale), scale)));
    for (int lane = 0; lane < CBQ_LANES; lane++)
        for (int k = 0; k < rows; k++) {
            const int at = lane * rows + k, is_active = active >> lane & 1;
            to.rows[at] = (uint16_t)(is_active ? t->index[g->words[k][lane]] : 0);
            to.signs[at] = (uint8_t)(is_active ? b->signs[first / 8 + at] ^ (flipped >> lane & 1 ? 255 : 0) : 0);
        }
}

/* CBQ_LANES groups from element `first` on, those whose bit in `active` is set; the others become zeros. Candidates are near
   5 / reach; scale is what stays where they are all worth nothing. */
CBQ_FN void iq2_fit(const cbq_neighbours *t, const weighted *b, int first, iq2_shape shape, const float reach[CBQ_LANES], F scale, uint32_t active,
                    iq2_fitted to) {
    const int candidates = 2 * shape.steps + 1;
    iq2_candidates c;
    iq2_lanes g;
    float x[32 * CBQ_LANES] __attribute__((aligned(64)));
    for (int i = 0; i < CBQ_LANES * IQ2_VECTORS(candidates); i++)
        c.numerator[i] = 5 + (float)((i < candidates ? i : candidates - 1) - shape.steps) * 0.1f;
    memset(g.qx, 0, sizeof g.qx), memset(g.q2, 0, sizeof g.q2);
    for (int lane = 0; lane < CBQ_LANES; lane++)
        if (active >> lane & 1) iq2_weigh_candidates(t, b, first + shape.n * lane, shape, &c, reach[lane], lane, &g);
    iq2_take_best(&g, shape.n / 8, iq2_best_candidates(&g, candidates, &scale));
    uint32_t again = active & m_bits(m_lt(f_zero(), scale));
    for (int lane = 0; lane < CBQ_LANES; lane++) {
        if (shape.refit) g.off_grid[lane] = (1u << shape.n / 8) - 1;
        if (!g.off_grid[lane]) again &= ~(1u << lane);
    }
    groups_to_lanes(b->x + first, shape.n, 1, x);
    iq2_find_again(t, b, first, shape.n, x, scale, again, &g);
    scale = f_select(m_of_bits(again), iq2_fitted_scales(b, first, shape.n, g.words, scale), scale);
    iq2_keep(t, b, first, shape.n / 8, scale, active, &g, to);
}

/* Codes of n scales: code s means (2 s + 1) d. */
CBQ_FN void iq2_scale_codes(const float *scales, int n, float d, uint8_t *codes) {
    const float inverse = 1 / d;
    for (int i = 0; i < n; i++) codes[i] = (uint8_t)cbq_clamp(cbq_nearest(0.5f * (inverse * scales[i] - 1)), 0, 15);
}
CBQ_FN float iq2_largest_scale(const float *scales, int n) {
    float most = 0;
    for (int i = 0; i < n; i++) most = scales[i] > most ? scales[i] : most;
    return most;
}
