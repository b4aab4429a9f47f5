/* Superblocks of 256 elements one by one, for formats whose codes come from a grid. */
#pragma once
#include "../neighbours.h"
#include "weights.h"

typedef struct {
    const float *x, *importance; /* importance may be NULL */
    float sum_of_squares;
    uint8_t *out;
} superblock;
typedef void encode_superblock_fn(const superblock *s, const cbq_neighbours *t);

/* Of n superblocks, CBQ_LANES or fewer: the sum of squares of each, in the order of its elements. */
CBQ_FN void sums_of_squares(const float *x, int64_t n, float sums[CBQ_LANES]) {
    if (n >= CBQ_LANES) {
        f_st_f32(sums, f_sums_of_squares(x, 256, 256));
        return;
    }
    for (int64_t b = 0; b < n; b++) {
        sums[b] = 0;
        for (int i = 0; i < 256; i++) sums[b] += x[256 * b + i] * x[256 * b + i];
    }
}

CBQ_FN superblock superblock_at(const cbq_encode_args *a, int bytes, int64_t i, float sum_of_squares) {
    return (superblock){.x = a->x + 256 * i,
                        .importance = a->importance ? a->importance + i % a->row_blocks * 256 : NULL,
                        .sum_of_squares = sum_of_squares,
                        .out = a->out + bytes * i};
}

/* -1 where there is no memory for the table of neighbours. */
CBQ_FN int each_superblock(const cbq_encode_args *a, int bytes, cbq_grid grid, encode_superblock_fn *encode) {
    const cbq_neighbours *t = cbq_neighbours_of(grid);
    if (!t) return -1;
    float sums[CBQ_LANES];
    for (int64_t i = 0; i < a->n; i++) {
        if (i % CBQ_LANES == 0) sums_of_squares(a->x + 256 * i, a->n - i, sums);
        const superblock s = superblock_at(a, bytes, i, sums[i % CBQ_LANES]);
        encode(&s, t);
    }
    return 0;
}
