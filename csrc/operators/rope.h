/* Pairs of elements turned by angles: y0 = x0 cos - x1 sin, y1 = x1 cos + x0 sin. All of a piece is read before any of it is written. */
#pragma once
#include "pieces.h"

CBQ_FN void load_table(const float *p, int64_t i, int64_t n, F v[CBQ_VECTORS]) { load_piece((const uint8_t *)p, i, n, CBQ_F32, v); }

/* Elements i .. of both halves of the row */
CBQ_FN void rope_split_piece(const cbq_rope_row *r, int64_t i, int64_t n, int dtype) {
    const int64_t half = r->n / 2;
    F a[CBQ_VECTORS], b[CBQ_VECTORS], c[CBQ_VECTORS], s[CBQ_VECTORS];
    load_piece(r->x, i, n, dtype, a), load_piece(r->x, half + i, n, dtype, b);
    load_table(r->cosines, i, n, c), load_table(r->sines, i, n, s);
    CBQ_UNROLL_ALL
    for (int k = 0; k < CBQ_VECTORS; k++) {
        F turned = f_fnma(b[k], s[k], f_mul(a[k], c[k]));
        b[k] = f_fma(a[k], s[k], f_mul(b[k], c[k]));
        a[k] = turned;
    }
    store_piece(r->y, i, n, dtype, r->past, a), store_piece(r->y, half + i, n, dtype, r->past, b);
}
CBQ_FN void rope_split(const cbq_rope_row *r, int dtype) {
    const int64_t half = r->n / 2;
    int64_t i = 0;
    for (; i + CBQ_W <= half; i += CBQ_W) rope_split_piece(r, i, CBQ_W, dtype);
    if (i < half) rope_split_piece(r, i, half - i, dtype);
}

CBQ_FN void rope_neighbours_piece(const cbq_rope_row *r, int64_t i, int64_t n, int dtype) {
    F x[CBQ_VECTORS], c[CBQ_VECTORS], s[CBQ_VECTORS];
    load_piece(r->x, i, n, dtype, x);
    load_table(r->cosines, i, n, c), load_table(r->sines, i, n, s);
    CBQ_UNROLL_ALL
    for (int k = 0; k < CBQ_VECTORS; k++) x[k] = f_fma(f_swap_pairs(x[k]), s[k], f_mul(x[k], c[k]));
    store_piece(r->y, i, n, dtype, r->past, x);
}
CBQ_FN void rope_neighbours(const cbq_rope_row *r, int dtype) {
    int64_t i = 0;
    for (; i + CBQ_W <= r->n; i += CBQ_W) rope_neighbours_piece(r, i, CBQ_W, dtype);
    if (i < r->n) rope_neighbours_piece(r, i, r->n - i, dtype);
}

#define CBQ_ROPE(DTYPE, dtype) \
    static void rope_split_##dtype(const cbq_rope_row *r) { rope_split(r, CBQ_##DTYPE); } \
    static void rope_neighbours_##dtype(const cbq_rope_row *r) { rope_neighbours(r, CBQ_##DTYPE); }
CBQ_ROPE(F32, f32) CBQ_ROPE(F16, f16) CBQ_ROPE(BF16, bf16)
