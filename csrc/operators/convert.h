/* A row of one type to another, rounded once. */
#pragma once
#include "pieces.h"

CBQ_FN void convert_row(const uint8_t *x, uint8_t *y, int64_t n, int from, int to) {
    F v[CBQ_VECTORS];
    for (int64_t i = 0; i < n; i += CBQ_W) {
        const int64_t count = n - i < CBQ_W ? n - i : CBQ_W;
        load_piece(x, i, count, from, v);
        store_piece(y, i, count, to, 0, v);
    }
}
static void widen_f16(const uint8_t *x, uint8_t *y, int64_t n) { convert_row(x, y, n, CBQ_F16, CBQ_F32); }
static void widen_bf16(const uint8_t *x, uint8_t *y, int64_t n) { convert_row(x, y, n, CBQ_BF16, CBQ_F32); }
static void narrow_f32(const uint8_t *x, uint8_t *y, int64_t n) { convert_row(x, y, n, CBQ_F32, CBQ_F32); }
static void narrow_f16(const uint8_t *x, uint8_t *y, int64_t n) { convert_row(x, y, n, CBQ_F32, CBQ_F16); }
static void narrow_bf16(const uint8_t *x, uint8_t *y, int64_t n) { convert_row(x, y, n, CBQ_F32, CBQ_BF16); }
