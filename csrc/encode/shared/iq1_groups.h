/* What iq1_s and iq1_m share. A group has one scale; its codes 0, 1, 2 stand for -1, 0, 1 plus 1/8 or minus 1/8, and each 8
   of them make a row of the grid. Without the grid, the best codes come from the order of the elements: those before some
   place have code 0, those from another place on have code 2. Every two places are tried, with a group to a lane. */
#pragma once
#include <float.h>

#include "largest.h"
#include "nearest_row.h"
#include "superblocks.h"

enum { IQ1_MOST = 32 }; /* elements of a group */

/* What codes 0, 1, 2 stand for with a positive delta, and with a negative one. */
static const float iq1_levels[2][4] = {{-0.875f, 0.125f, 1.125f, 0}, {-1.125f, -0.125f, 0.875f, 0}};

/* Groups in lanes, element by element: as they are, or in order of x, where `place` is the element's number. */
typedef struct {
    float x[IQ1_MOST][CBQ_LANES], w[IQ1_MOST][CBQ_LANES], place[IQ1_MOST][CBQ_LANES];
} __attribute__((aligned(64))) iq1_lanes;

/* The best split of each lane so far: its number, or -1 where there is none, its scale, and how good it is. */
typedef struct {
    F scale, score;
    I split;
} iq1_best;

/* Splits: places i and k of the elements in order, and which deltas are negative, in bits. */
CBQ_FN int iq1_split(int i, int k, int deltas) { return i | k << 8 | deltas << 16; }

typedef void iq1_search_fn(const iq1_lanes *sorted, iq1_best *best);

/* What becomes of a tile's groups, row by row and group by group. */
typedef struct {
    uint16_t rows[CBQ_TILE_ELEMENTS / 8];
    uint8_t minus[CBQ_TILE_ELEMENTS / 8]; /* of each row: is its delta negative? */
    float scales[CBQ_TILE_ELEMENTS / 16];
} iq1_fitted;

CBQ_FN M iq1_is_before(F x, F place, F other_x, F other_place) {
    return m_or(m_lt(x, other_x), m_and(m_eq(x, other_x), m_lt(place, other_place)));
}
CBQ_FN void iq1_exchange(M swap, float *a, float *b) {
    F low = f_ld(a), high = f_ld(b);
    f_st_f32(a, f_select(swap, high, low));
    f_st_f32(b, f_select(swap, low, high));
}
/* Batcher's merge exchange (Knuth, volume 3, 5.2.2, algorithm M), for n a power of two. Equal elements keep their order, as
   they do in the reference's sort. */
CBQ_FN void iq1_sort(iq1_lanes *g, int n) {
    for (int p = n / 2; p > 0; p /= 2)
        for (int q = n / 2, r = 0, d = p; d > 0; d = q - p, q /= 2, r = p)
            for (int i = 0; i + d < n; i++) {
                if ((i & p) != r) continue;
                M swap = iq1_is_before(f_ld(g->x[i + d]), f_ld(g->place[i + d]), f_ld(g->x[i]), f_ld(g->place[i]));
                iq1_exchange(swap, g->x[i], g->x[i + d]);
                iq1_exchange(swap, g->w[i], g->w[i + d]);
                iq1_exchange(swap, g->place[i], g->place[i + d]);
            }
}

CBQ_FN M iq1_is_better(const iq1_best *b, F qx, F q2) {
    return m_and(m_lt(f_zero(), q2), m_lt(f_mul(b->score, q2), f_mul(qx, qx)));
}
CBQ_FN void iq1_take_better(iq1_best *b, F qx, F q2, int split) {
    M better = iq1_is_better(b, qx, q2);
    F scale = f_div(qx, q2);
    b->scale = f_select(better, scale, b->scale);
    b->score = f_select(better, f_mul(scale, qx), b->score);
    b->split = i_select(better, i_set1(split), b->split);
}

/* The element at a place of each lane's order. Beyond the last one: what all are before. */
CBQ_FN void iq1_element_at(const iq1_lanes *sorted, int n, const int32_t at[CBQ_LANES], F *x, F *place) {
    float its_x[CBQ_LANES], its_place[CBQ_LANES];
    for (int lane = 0; lane < CBQ_LANES; lane++) {
        const int is_there = at[lane] < n;
        its_x[lane] = is_there ? sorted->x[at[lane]][lane] : FLT_MAX;
        its_place[lane] = is_there ? sorted->place[at[lane]][lane] : (float)n;
    }
    *x = f_ld(its_x), *place = f_ld(its_place);
}

/* The codes of each row under each lane's split; turned over where the scale was negative. */
CBQ_FN void iq1_words(const iq1_lanes *g, const iq1_lanes *sorted, int n, I split, M turned, int32_t words[][CBQ_LANES]) {
    int32_t at[2][CBQ_LANES];
    F x[2], place[2];
    for (int side = 0; side < 2; side++) {
        i_st(at[side], i_and(i_shr(split, 8 * side), i_set1(255)));
        iq1_element_at(sorted, n, at[side], x + side, place + side);
    }
    for (int row = 0; row < n / 8; row++) {
        I word = i_set1(0);
        for (int i = 0; i < 8; i++) {
            F xi = f_ld(g->x[8 * row + i]), its_place = f_set1((float)(8 * row + i));
            M is_0 = iq1_is_before(xi, its_place, x[0], place[0]), is_0_or_1 = iq1_is_before(xi, its_place, x[1], place[1]);
            I code = i_select(is_0, i_set1(0), i_select(is_0_or_1, i_set1(1), i_set1(2)));
            code = i_select(turned, i_sub(i_set1(2), code), code);
            word = i_or(word, i_shl(code, 2 * i));
        }
        i_st(words[row], word);
    }
}

/* The best scale of each lane for its words; minus: 4 where the delta of the row is negative, else 0. */
CBQ_FN F iq1_fitted_scales(const iq1_lanes *g, int n, int32_t words[][CBQ_LANES], int32_t minus[][CBQ_LANES], F scale) {
    const T levels = t_load8(iq1_levels[0]);
    F qx = f_zero(), q2 = f_zero();
    for (int i = 0; i < n; i++) {
        I code = i_and(i_shr(i_ld(words[i / 8]), 2 * (i & 7)), i_set1(3));
        F q = t_pick8(levels, i_or(code, i_ld(minus[i / 8]))), wq = f_mul(f_ld(g->w[i]), q);
        qx = f_add(qx, f_mul(wq, f_ld(g->x[i])));
        q2 = f_add(q2, f_mul(wq, q));
    }
    return f_select(m_and(m_lt(f_zero(), qx), m_lt(f_zero(), q2)), f_div(qx, q2), scale);
}

/* Puts the words of one lane onto the grid. Was any of them not on it? */
CBQ_FN int iq1_to_grid(const cbq_neighbours *t, const float *x, const float *w, int n, int lane, float scale, int32_t words[][CBQ_LANES],
                       int32_t minus[][CBQ_LANES]) {
    int replaced = 0;
    for (int row = 0; row < n / 8; row++) {
        int32_t *word = &words[row][lane];
        if (t->index[*word] >= 0) continue;
        *word = nearest_row(t, *word, scale, iq1_levels[minus[row][lane] != 0], x + 8 * row, w + 8 * row);
        replaced = 1;
    }
    return replaced;
}

/* Fits the first `count` of CBQ_LANES groups. One all of whose weights are 0 stays as it is. */
CBQ_FN void iq1_fit(const cbq_neighbours *t, const float *x, const float *w, int n, const uint16_t *groups, int count, iq1_search_fn *search,
                    iq1_fitted *to) {
    iq1_lanes g, sorted;
    int32_t words[4][CBQ_LANES], minus[4][CBQ_LANES];
    float scales[CBQ_LANES];
    gather_groups(x, n, groups, g.x[0]);
    gather_groups(w, n, groups, g.w[0]);
    for (int i = 0; i < n; i++) f_st_f32(g.place[i], f_set1((float)i));
    sorted = g;
    iq1_sort(&sorted, n);
    iq1_best best = {.scale = f_zero(), .score = f_set1(-FLT_MAX), .split = i_set1(-1)};
    search(&sorted, &best);
    const M turned = m_lt(best.scale, f_zero());
    const I chosen = i_shr(best.split, 16), deltas = i_select(turned, i_sub(i_set1(3), chosen), chosen);
    for (int row = 0; row < n / 8; row++) /* bit 1 belongs to the first half of the group, bit 0 to the second one */
        i_st(minus[row], i_and(i_shl(i_shr(deltas, row < n / 16), 2), i_set1(4)));
    F scale = f_abs(best.scale);
    f_st_f32(scales, scale);
    iq1_words(&g, &sorted, n, best.split, turned, words);
    const uint32_t kept = first_lanes(count) & ~m_bits(m_ieq(best.split, i_set1(-1)));
    uint32_t replaced = 0;
    for (uint32_t left = kept; left; left &= left - 1) {
        const int lane = __builtin_ctz(left), at = n * groups[lane];
        replaced |= (uint32_t)iq1_to_grid(t, x + at, w + at, n, lane, scales[lane], words, minus) << lane;
    }
    f_st_f32(scales, f_select(m_of_bits(replaced), iq1_fitted_scales(&g, n, words, minus, scale), scale));
    for (uint32_t left = kept; left; left &= left - 1) {
        const int lane = __builtin_ctz(left);
        to->scales[groups[lane]] = scales[lane];
        for (int row = 0; row < n / 8; row++) {
            to->rows[n / 8 * groups[lane] + row] = (uint16_t)t->index[words[row][lane]];
            to->minus[n / 8 * groups[lane] + row] = minus[row][lane] != 0;
        }
    }
}

/* Groups without a magnitude of `least` or more become zeros. */
CBQ_FN void iq1_fit_all(const cbq_neighbours *t, const float *x, const float *w, int blocks, int n, float least, iq1_search_fn *search,
                        iq1_fitted *to) {
    group_list list = {.n = 0};
    memset(to, 0, sizeof *to);
    for (int group = 0; group < 256 / n * blocks; group++)
        if (largest_magnitude(x + n * group, n) >= least) list.at[list.n++] = (uint16_t)group;
    fill_up(&list);
    for (int i = 0; i < list.n; i += CBQ_LANES) iq1_fit(t, x, w, n, list.at + i, list.n - i, search, to);
}
