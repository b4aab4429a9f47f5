/* q4_0, q4_1, q5_0 and q5_1 with an importance matrix: blocks of 32, whose weights know the mean square of their whole row. */
#pragma once
#include "../tiles.h"
#include "lanes_of_groups.h"
#include "weights.h"

enum { CBQ_ROWS_AT_ONCE = 64 };

/* The mean squares of n rows of k elements, each summed in order; four at a time, because an addition waits for the last. */
CBQ_FN void row_means(const float *x, int64_t n, int64_t k, float *means) {
    for (int64_t r = 0; r < n; r += 4) {
        const float *row[4];
        float sum[4] = {0, 0, 0, 0};
        for (int i = 0; i < 4; i++) row[i] = x + (r + i < n ? r + i : r) * k;
        for (int64_t e = 0; e < k; e++)
            for (int i = 0; i < 4; i++) sum[i] += row[i][e] * row[i][e];
        for (int i = 0; i < 4 && r + i < n; i++) means[r + i] = sum[i] / (float)k;
    }
}

CBQ_FN int encode_weighted_rows(const cbq_encode_args *a, int bytes, cbq_encode_tile_fn *encode) {
    float means[CBQ_ROWS_AT_ONCE];
    cbq_encode_args part = *a;
    for (int64_t rows = a->n / (a->row_blocks ? a->row_blocks : 1); rows > 0; rows -= CBQ_ROWS_AT_ONCE) {
        const int64_t n = rows < CBQ_ROWS_AT_ONCE ? rows : CBQ_ROWS_AT_ONCE;
        part.n = n * a->row_blocks;
        row_means(part.x, n, 32 * a->row_blocks, means);
        encode_tiles_with(&part, means, (cbq_tile_shape){CBQ_PAIR, 32, bytes}, encode);
        part.x += 32 * part.n, part.out += bytes * part.n;
    }
    return 0;
}

/* x and weights of the tile's CBQ_PAIR blocks, in lanes. */
CBQ_FN void weighted_lanes(const cbq_encode_tile *t, float *x, float *w) {
    float weights[CBQ_PAIR * 32] __attribute__((aligned(64)));
    for (int b = 0; b < CBQ_PAIR; b++) weights_of(t->x + 32 * b, t->importance[b], t->row_mean[b], 32, weights + 32 * b);
    groups_to_lanes(t->x, 32, 2, x);
    groups_to_lanes(weights, 32, 2, w);
}
