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
    int all_again; /* at the best scale, rows are found again: all of them, or those that were not on the grid */
} iq2_shape;

/* CBQ_LANES groups on their way: what was found for each candidate of each, and then for the best ones. */
typedef struct {
    int32_t found[CBQ_LANES][4][IQ2_MOST + 1];
    uint32_t replaced[CBQ_LANES][4];
    float qx[CBQ_LANES][IQ2_MOST], q2[CBQ_LANES][IQ2_MOST];
    int32_t words[4][CBQ_LANES];
    uint32_t off_grid[CBQ_LANES]; /* a bit for each row of the best candidate */
    float x[32 * CBQ_LANES], w[32 * CBQ_LANES]; /* element by element */
    float root[CBQ_LANES][32]; /* of the weights: the weights of distances to the grid */
} __attribute__((aligned(64))) iq2_lanes;

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

/* Weighs the candidates (5 + 0.1 step) / reach of one group, whose elements are x. */
CBQ_FN void iq2_weigh_candidates(const cbq_neighbours *t, const float *x, const float *w, iq2_shape shape, iq2_candidates *c, float reach,
                                 int lane, iq2_lanes *to) {
    const int n = 2 * shape.steps + 1;
    float *root = to->root[lane], wx[32];
    for (int i = 0; i < shape.n; i += CBQ_LANES) {
        f_st_f32(root + i, f_sqrt(f_ld(w + i)));
        f_st_f32(wx + i, f_mul(f_ld(w + i), f_ld(x + i)));
    }
    for (int at = 0; at < n; at += CBQ_LANES) {
        F inverse = f_div(f_ld(c->numerator + at), f_set1(reach));
        f_st_f32(c->inverse + at, inverse);
        f_st_f32(c->scale + at, f_div(f_set1(1), inverse));
    }
    for (int k = 0; k < shape.n / 8; k++) {
        to->replaced[lane][k] = iq2_words(t, c, n, x + 8 * k, root + 8 * k, to->found[lane][k]);
        iq2_add_sums(n, to->found[lane][k], w + 8 * k, wx + 8 * k, to->qx[lane], to->q2[lane]);
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

/* Finds rows of the groups in `lanes` again, those in g->off_grid, for the scale that was best. */
CBQ_FN void iq2_find_again(const cbq_neighbours *t, const weighted *b, int n, const uint16_t *groups, F scale, uint32_t lanes, iq2_lanes *g) {
    const F inverse = f_div(f_set1(1), scale);
    float scales[CBQ_LANES];
    int32_t words[CBQ_LANES];
    f_st_f32(scales, scale);
    for (int k = 0; k < n / 8; k++) {
        I word = i_set1(0);
        for (int i = 0; i < 8; i++) word = i_or(word, i_shl(iq2_nearest_code(inverse, f_ld(g->x + (8 * k + i) * CBQ_LANES)), 2 * i));
        i_st(words, word);
        for (int lane = 0; lane < CBQ_LANES; lane++) {
            if (!(lanes >> lane & g->off_grid[lane] >> k & 1)) continue;
            const float *x = b->x + n * groups[lane] + 8 * k;
            const int is_on_grid = t->index[words[lane]] >= 0;
            g->words[k][lane] = is_on_grid ? words[lane] : nearest_row(t, words[lane], scales[lane], iq2_levels, x, g->root[lane] + 8 * k);
        }
    }
}

/* The best scale of each lane for its words, or `scale` where weights are 0. */
CBQ_FN F iq2_fitted_scales(const iq2_lanes *g, int n, F scale) {
    const T levels = t_load8(iq2_levels);
    F qx = f_zero(), q2 = f_zero();
    for (int i = 0; i < n; i++) {
        const F x = f_ld(g->x + i * CBQ_LANES), w = f_ld(g->w + i * CBQ_LANES);
        F q = t_pick8(levels, i_shr(i_ld(g->words[i / 8]), 2 * (i & 7)));
        qx = f_add(qx, f_mul(f_mul(w, x), q));
        q2 = f_add(q2, f_mul(f_mul(w, q), q));
    }
    return f_select(m_lt(f_zero(), q2), f_div(qx, q2), scale);
}

/* Rows, signs and scale of the groups in `lanes`. A negative scale becomes a positive one with the other signs. */
CBQ_FN void iq2_keep(const cbq_neighbours *t, weighted *b, int rows, const uint16_t *groups, F scale, uint32_t lanes, const iq2_lanes *g) {
    float scales[CBQ_LANES];
    f_st_f32(scales, scale);
    for (; lanes; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        b->scales[groups[lane]] = scales[lane] < 0 ? -scales[lane] : scales[lane];
        for (int k = 0; k < rows; k++) {
            const int at = groups[lane] * rows + k;
            b->rows[at] = (uint16_t)t->index[g->words[k][lane]];
            b->kept_signs[at] = (uint8_t)(b->signs[at] ^ (scales[lane] < 0 ? 255 : 0));
        }
    }
}

/* Fits the groups in `lanes` of CBQ_LANES groups. Candidates are near 5 / reach; scale is what stays where none is worth
   anything. g->x and g->w are there. */
CBQ_FN void iq2_fit(const cbq_neighbours *t, weighted *b, iq2_shape shape, const uint16_t *groups, F reach, F scale, uint32_t lanes, iq2_lanes *g) {
    const int n = 2 * shape.steps + 1;
    float reaches[CBQ_LANES];
    iq2_candidates c;
    f_st_f32(reaches, reach);
    for (int i = 0; i < CBQ_LANES * IQ2_VECTORS(n); i++) c.numerator[i] = 5 + (float)((i < n ? i : n - 1) - shape.steps) * 0.1f;
    memset(g->qx, 0, sizeof g->qx), memset(g->q2, 0, sizeof g->q2);
    for (uint32_t left = lanes; left; left &= left - 1) {
        const int lane = __builtin_ctz(left), at = shape.n * groups[lane];
        iq2_weigh_candidates(t, b->x + at, b->w + at, shape, &c, reaches[lane], lane, g);
    }
    iq2_take_best(g, shape.n / 8, iq2_best_candidates(g, n, &scale));
    uint32_t again = lanes & m_bits(m_lt(f_zero(), scale));
    for (int lane = 0; lane < CBQ_LANES; lane++) {
        if (shape.all_again) g->off_grid[lane] = (1u << shape.n / 8) - 1;
        if (!g->off_grid[lane]) again &= ~(1u << lane);
    }
    iq2_find_again(t, b, shape.n, groups, scale, again, g);
    scale = f_select(m_of_bits(again), iq2_fitted_scales(g, shape.n, scale), scale);
    iq2_keep(t, b, shape.n / 8, groups, scale, lanes, g);
}

/* The groups of 16 of iq2_xs and iq2_s: those without an element of `least` or more become zeros. */
CBQ_FN void iq2_fit_groups_of_16(const cbq_neighbours *t, weighted *b, int blocks, float least) {
    const iq2_shape shape = {.n = 16, .steps = 9, .all_again = 0};
    group_list list;
    iq2_lanes g;
    list_groups(b, blocks, 16, least, &list);
    for (int i = 0; i < list.n; i += CBQ_LANES) {
        const uint16_t *groups = list.at + i;
        gather_groups(b->x, 16, groups, g.x);
        gather_groups(b->w, 16, groups, g.w);
        const F reach = largest_of_lanes(g.x, 16);
        iq2_fit(t, b, shape, groups, reach, f_div(reach, f_set1(5)), first_lanes(list.n - i), &g);
    }
}
