/* The register-blocked product of decoded rows: y[i][j] = sum over k of x[i][k] * w[j][k]. Both operands lie along k, so a
   panel needs no transposition: a tile of CBQ_TILE_M x CBQ_TILE_N accumulators is loaded with M + N vectors for M * N
   multiply-adds, and its lanes are summed once at the end. Knows no format. */
#pragma once
#include "kernels.h"

/* One vector of each operand more into a sum: floats, or pairs of bf16. */
typedef F (*cbq_mac_fn)(F x, F w, F sum);

CBQ_FN void tile(const cbq_tile_args *a, int64_t i0, int64_t j0, int m, int n, cbq_mac_fn mac) {
    if (m > CBQ_TILE_M || n > CBQ_TILE_N) return; /* not one of this instruction set's tiles: no code */
    const uint8_t *x = a->x + i0 * a->x_stride, *w = a->w + j0 * a->w_stride;
    F sum[CBQ_TILE_M][CBQ_TILE_N];
    CBQ_UNROLL_ALL
    for (int i = 0; i < m; i++)
        CBQ_UNROLL_ALL
        for (int j = 0; j < n; j++) sum[i][j] = f_set1(0);
    for (int64_t at = 0; at < a->bytes; at += (int64_t)sizeof(F)) {
        F xs[CBQ_TILE_M];
        CBQ_UNROLL_ALL
        for (int i = 0; i < m; i++) xs[i] = f_ld_f32(x + i * a->x_stride + at);
        CBQ_UNROLL_ALL
        for (int j = 0; j < n; j++) {
            F ws = f_ld_f32(w + j * a->w_stride + at);
            CBQ_UNROLL_ALL
            for (int i = 0; i < m; i++) sum[i][j] = mac(xs[i], ws, sum[i][j]);
        }
    }
    CBQ_UNROLL_ALL
    for (int i = 0; i < m; i++) {
        float *y = a->y + (i0 + i) * a->y_stride + j0, sums[4];
        CBQ_UNROLL_ALL
        for (int j = 0; j + 4 <= n; j += 4) {
            f_sum4(sum[i] + j, sums);
            CBQ_UNROLL_ALL
            for (int c = 0; c < 4; c++) y[j + c] = (a->add ? y[j + c] : 0) + sums[c];
        }
        CBQ_UNROLL_ALL
        for (int j = n / 4 * 4; j < n; j++) y[j] = (a->add ? y[j] : 0) + f_sum(sum[i][j]);
    }
}

#define CBQ_TILE_CASE(m, n) case 8 * m + n: tile(a, i, j, m, n, mac); break;
#define CBQ_TILE_CASES(m) CBQ_TILE_CASE(m, 1) CBQ_TILE_CASE(m, 2) CBQ_TILE_CASE(m, 3) CBQ_TILE_CASE(m, 4) CBQ_TILE_CASE(m, 5) CBQ_TILE_CASE(m, 6)

/* The rows of w outside, those of x inside: a few rows of w stay in the first-level cache. The rows of x go in tiles of nearly
   equal height: five are three and two, not four and one. */
CBQ_FN void tiles(const cbq_tile_args *a, cbq_mac_fn mac) {
    const int64_t pieces = (a->m + CBQ_TILE_M - 1) / CBQ_TILE_M;
    for (int64_t j = 0; j < a->n; j += CBQ_TILE_N)
        for (int64_t p = 0, i = 0; p < pieces; p++) {
            int64_t end = a->m * (p + 1) / pieces, n = a->n - j < CBQ_TILE_N ? a->n - j : CBQ_TILE_N;
            switch (8 * (end - i) + n) { CBQ_TILE_CASES(1) CBQ_TILE_CASES(2) CBQ_TILE_CASES(3) CBQ_TILE_CASES(4) }
            i = end;
        }
}

