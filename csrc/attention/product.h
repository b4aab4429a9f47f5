/* The register-blocked product of attention: sums[h][j] = sum over i of a[h][i] * b[i][j]. The second operand is a panel: TILE_W numbers
   side by side for each i. A number of the first is spread over a vector, so that no sum of lanes is ever needed, and each sum is made
   in the order of i, whatever is computed beside it. */
#pragma once
#include "loads.h"

/* Sums are TILE_H x TILE_V vectors: with TILE_V operands and one more, as many as there are registers. */
enum { TILE_V = CBQ_TILE_M == 4 ? 4 : 2, TILE_H = CBQ_TILE_M == 2 ? 4 : 6, TILE_W = TILE_V * CBQ_LANES };

typedef F tile_sums[TILE_H][TILE_V];

CBQ_FN void tile_product(tile_sums sum, int heads, const float *a, int64_t a_stride, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++, b += TILE_W) {
        F wide[TILE_V];
        CBQ_UNROLL_ALL
        for (int v = 0; v < TILE_V; v++) wide[v] = f_ld(b + v * CBQ_LANES);
        CBQ_UNROLL_ALL
        for (int h = 0; h < heads; h++) {
            F one = f_set1(a[h * a_stride + i]);
            CBQ_UNROLL_ALL
            for (int v = 0; v < TILE_V; v++) sum[h][v] = f_fma(one, wide[v], sum[h][v]);
        }
    }
}

/* Rows in tiles of nearly equal height. */
CBQ_FN int64_t tile_count(int64_t heads) { return (heads + TILE_H - 1) / TILE_H; }
CBQ_FN int64_t tile_begin(int64_t heads, int64_t i) { return heads * i / tile_count(heads); }

/* Calls a function of `heads` as a constant. */
#define TILE_CASE(m, function, ...) case m: if (m <= TILE_H) function(__VA_ARGS__, m); break;
#define TILE_SWITCH(m, function, ...) switch (m) { \
    TILE_CASE(1, function, __VA_ARGS__) TILE_CASE(2, function, __VA_ARGS__) TILE_CASE(3, function, __VA_ARGS__) \
    TILE_CASE(4, function, __VA_ARGS__) TILE_CASE(5, function, __VA_ARGS__) TILE_CASE(6, function, __VA_ARGS__) }
