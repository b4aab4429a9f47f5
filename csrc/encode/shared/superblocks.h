/* Superblocks of 256 elements for formats whose codes come from a grid. Up to CBQ_LANES of them are on their way at a time;
   those of their groups that are not zero fill the lanes. */
#pragma once
#include "../neighbours.h"
#include "lanes_of_groups.h"
#include "weights.h"

enum { CBQ_TILE_ELEMENTS = 256 * CBQ_LANES };

typedef struct {
    const float *x;
    const float *importance[CBQ_LANES]; /* of each; NULL where there is none */
    float sum_of_squares[CBQ_LANES];
    int n; /* superblocks, CBQ_LANES or fewer */
    uint8_t *out;
} superblocks;
typedef void encode_superblocks_fn(const superblocks *s, const cbq_neighbours *t);

/* The sum of squares of each superblock, in the order of its elements. */
CBQ_FN void sums_of_squares(superblocks *s) {
    if (s->n == CBQ_LANES) {
        f_st_f32(s->sum_of_squares, f_sums_of_squares(s->x, 256, 256));
        return;
    }
    for (int b = 0; b < s->n; b++) {
        s->sum_of_squares[b] = 0;
        for (int i = 0; i < 256; i++) s->sum_of_squares[b] += s->x[256 * b + i] * s->x[256 * b + i];
    }
}

/* -1 where there is no memory for the table of neighbours. */
CBQ_FN int each_superblocks(const cbq_encode_args *a, int bytes, cbq_grid grid, encode_superblocks_fn *encode) {
    const cbq_neighbours *t = cbq_neighbours_of(grid);
    if (!t) return -1;
    for (int64_t i = 0; i < a->n; i += CBQ_LANES) {
        superblocks s = {.x = a->x + 256 * i, .n = a->n - i < CBQ_LANES ? (int)(a->n - i) : CBQ_LANES, .out = a->out + bytes * i};
        for (int b = 0; b < s.n && a->importance; b++) s.importance[b] = a->importance + (i + b) % a->row_blocks * 256;
        sums_of_squares(&s);
        encode(&s, t);
    }
    return 0;
}

/* Numbers of groups, in order. The list can be taken CBQ_LANES at a time: behind its end, the first one follows again. */
typedef struct {
    int n;
    uint16_t at[16 * CBQ_LANES + CBQ_LANES];
} group_list;

CBQ_FN void fill_up(group_list *list) {
    for (int i = 0; i < CBQ_LANES; i++) list->at[list->n + i] = list->at[0];
}

/* Groups of n elements to n x CBQ_LANES floats, one to a lane. */
CBQ_FN void gather_groups(const float *from, int n, const uint16_t groups[CBQ_LANES], float *to) {
    float side_by_side[32 * CBQ_LANES] __attribute__((aligned(64)));
    for (int lane = 0; lane < CBQ_LANES; lane++) memcpy(side_by_side + n * lane, from + n * groups[lane], (size_t)n * sizeof(float));
    groups_to_lanes(side_by_side, n, 1, to);
}

CBQ_FN F largest_of_lanes(const float *x, int n) {
    F most = f_ld(x);
    for (int i = 1; i < n; i++) most = f_max(f_ld(x + i * CBQ_LANES), most);
    return most;
}
/* A bit for each of the first n lanes, or for all of them. */
CBQ_FN uint32_t first_lanes(int n) { return n < CBQ_LANES ? (1u << n) - 1 : (1u << CBQ_LANES) - 1; }

CBQ_FN float largest_scale(const float *scales, int n) {
    float most = 0;
    for (int i = 0; i < n; i++) most = scales[i] > most ? scales[i] : most;
    return most;
}

/* Codes 0 .. most of n scales: code s means (2 s + 1) d. */
CBQ_FN void codes_of_scales(const float *scales, int n, float d, int most, uint8_t *codes) {
    const float inverse = 1 / d;
    for (int i = 0; i < n; i++) codes[i] = (uint8_t)cbq_clamp(cbq_nearest(0.5f * (inverse * scales[i] - 1)), 0, most);
}
