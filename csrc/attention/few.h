/* A step of a cache for few heads: each vector is loaded where it lies and multiplied with all of them, for memory is the limit, not
   multiply-adds. Rows are whole vectors. Lanes are parts of a row; FEW_SUMS products are summed over their lanes together. */
#pragma once
#include "attention.h"
#include "loads.h"

enum { FEW_SUMS = CBQ_TILE_M == 4 ? 16 : 8, FEW_HEADS = FEW_SUMS / 4 }; /* sums in registers, and the most heads of a tile */

/* The product of a query and one row, spread over lanes: two sums, so that they wait less for each other. */
CBQ_FN F row_product(const float *q, const uint8_t *row, int64_t width, int dtype) {
    const int size = cbq_float_bytes(dtype);
    F even = f_zero(), odd = f_zero();
    int64_t at = 0;
    for (; at + 2 * CBQ_LANES <= width; at += 2 * CBQ_LANES) {
        even = f_fma(f_ld(q + at), f_ld_as(row + at * size, dtype), even);
        odd = f_fma(f_ld(q + at + CBQ_LANES), f_ld_as(row + (at + CBQ_LANES) * size, dtype), odd);
    }
    if (at < width) even = f_fma(f_ld(q + at), f_ld_as(row + at * size, dtype), even);
    return f_add(even, odd);
}

/* scores[h][i] = q[h] . row i for FEW_SUMS / heads rows, `scores` being rows of CBQ_STEP. */
CBQ_FN void few_score_tile(const float *q, int64_t q_stride, const uint8_t *const *rows, int64_t width, int dtype, float *scores, int heads) {
    const int keys = FEW_SUMS / heads, size = cbq_float_bytes(dtype);
    F sum[FEW_SUMS];
    float result[FEW_SUMS];
    CBQ_UNROLL_ALL
    for (int i = 0; i < FEW_SUMS; i++) sum[i] = f_zero();
    for (int64_t at = 0; at < width; at += CBQ_LANES) {
        F some[FEW_HEADS];
        CBQ_UNROLL_ALL
        for (int h = 0; h < heads; h++) some[h] = f_ld(q + h * q_stride + at);
        CBQ_UNROLL_ALL
        for (int i = 0; i < keys; i++) {
            F key = f_ld_as(rows[i] + at * size, dtype);
            CBQ_UNROLL_ALL
            for (int h = 0; h < heads; h++) sum[h * keys + i] = f_fma(some[h], key, sum[h * keys + i]);
        }
    }
    CBQ_UNROLL_ALL
    for (int i = 0; i < FEW_SUMS; i += CBQ_LANES) f_st_f32(result + i, f_sum_each(sum + i));
    for (int h = 0; h < heads; h++) memcpy(scores + h * CBQ_STEP, result + h * keys, (size_t)keys * 4);
}

CBQ_FN void few_score_heads(const float *q, int64_t q_stride, const uint8_t *const *rows, int64_t n, int64_t width, rows_ahead ahead,
                            float *scores, int dtype, int heads) {
    for (int64_t i = 0; i < n; i += FEW_SUMS / heads) {
        ask_for(ahead, i, FEW_SUMS / heads);
        few_score_tile(q, q_stride, rows + i, width, dtype, scores + i, heads);
    }
}
/* The same for one head: rows one after the other, as memory likes them. */
CBQ_FN void few_score_head(const float *q, const uint8_t *const *rows, int64_t n, int64_t width, rows_ahead ahead, float *scores, int dtype) {
    for (int64_t i = 0; i < n; i += CBQ_LANES) {
        F sum[CBQ_LANES];
        for (int j = 0; j < CBQ_LANES; j++) {
            ask_for(ahead, i + j, 1);
            sum[j] = row_product(q, rows[i + j], width, dtype);
        }
        f_st_f32(scores + i, f_sum_each(sum));
    }
}
/* Of n rows; pointers to CBQ_STEP rows are there, for the last tile may reach past n. A few rows are taken for all whole tiles of heads, so
   that memory is read in order. */
CBQ_FN void few_scores_as(const float *q, int64_t q_stride, int64_t heads, const uint8_t *const *rows, int64_t n, int64_t width,
                          rows_ahead ahead, float *scores, int dtype) {
    const int tile = FEW_SUMS / FEW_HEADS;
    const int64_t most = heads / FEW_HEADS * FEW_HEADS;
    for (int64_t i = 0; most && i < n; i += tile) {
        ask_for(ahead, i, tile);
        for (int64_t h = 0; h < most; h += FEW_HEADS)
            few_score_tile(q + h * q_stride, q_stride, rows + i, width, dtype, scores + h * CBQ_STEP + i, FEW_HEADS);
    }
    if (most) ahead.bytes = 0;
    for (int64_t h = most; h < heads;) {
        const float *some = q + h * q_stride;
        float *to = scores + h * CBQ_STEP;
        if (FEW_HEADS > 2 && heads - h >= 2) few_score_heads(some, q_stride, rows, n, width, ahead, to, dtype, 2), h += 2;
        else few_score_head(some, rows, n, width, ahead, to, dtype), h += 1;
        ahead.bytes = 0; /* once is enough */
    }
}
static void few_scores(const float *q, int64_t q_stride, int64_t heads, const uint8_t *const *rows, int64_t n, const cbq_rows *of,
                       rows_ahead ahead, float *scores) {
    if (of->dtype == CBQ_F32) few_scores_as(q, q_stride, heads, rows, n, of->width, ahead, scores, CBQ_F32);
    else if (of->dtype == CBQ_F16) few_scores_as(q, q_stride, heads, rows, n, of->width, ahead, scores, CBQ_F16);
    else few_scores_as(q, q_stride, heads, rows, n, of->width, ahead, scores, CBQ_BF16);
}

/* o[h] = o[h] * rescale[h] + sum over i of weights[h][i] * row i, for `vectors` vectors of columns from `at` on. */
CBQ_FN void few_value_tile(const float *weights, const float *rescale, const uint8_t *const *rows, int64_t n, int64_t at,
                           rows_ahead ahead, float *o, int64_t o_stride, int dtype, int heads, int vectors) {
    const int64_t first = at * cbq_float_bytes(dtype);
    const int step = CBQ_LANES * cbq_float_bytes(dtype);
    F sum[FEW_SUMS];
    if (heads * vectors > FEW_SUMS) return; /* not one of this instruction set's tiles: no code (nor warnings, by the remainders below) */
    CBQ_UNROLL_ALL
    for (int h = 0; h < heads; h++)
        CBQ_UNROLL_ALL
        for (int v = 0; v < vectors; v++) sum[(h * vectors + v) % FEW_SUMS] = f_mul(f_ld(o + h * o_stride + at + v * CBQ_LANES), f_set1(rescale[h]));
    for (int64_t i = 0; i < n; i++) {
        F weight[FEW_HEADS];
        ask_for(ahead, i, 1);
        CBQ_UNROLL_ALL
        for (int h = 0; h < heads; h++) weight[h] = f_set1(weights[h * CBQ_STEP + i]);
        CBQ_UNROLL_ALL
        for (int v = 0; v < vectors; v++) {
            F value = f_ld_as(rows[i] + first + v * step, dtype);
            CBQ_UNROLL_ALL
            for (int h = 0; h < heads; h++) sum[(h * vectors + v) % FEW_SUMS] = f_fma(weight[h], value, sum[(h * vectors + v) % FEW_SUMS]);
        }
    }
    CBQ_UNROLL_ALL
    for (int h = 0; h < heads; h++)
        CBQ_UNROLL_ALL
        for (int v = 0; v < vectors; v++) f_st_f32(o + h * o_stride + at + v * CBQ_LANES, sum[(h * vectors + v) % FEW_SUMS]);
}
/* Columns in tiles as wide as there are registers for so many heads, then in narrower ones. */
CBQ_FN void few_value_heads(const float *weights, const float *rescale, const uint8_t *const *rows, int64_t n, int64_t width,
                            rows_ahead ahead, float *o, int64_t o_stride, int dtype, int heads) {
    int64_t at = 0;
    CBQ_UNROLL_ALL
    for (int vectors = 16; vectors >= 1; vectors /= 2)
        for (; heads * vectors <= FEW_SUMS && width - at >= vectors * CBQ_LANES; at += vectors * CBQ_LANES) {
            few_value_tile(weights, rescale, rows, n, at, ahead, o, o_stride, dtype, heads, vectors);
            ahead.bytes = 0;
        }
}
CBQ_FN void few_values_as(const float *weights, const float *rescale, int64_t heads, const uint8_t *const *rows, int64_t n, int64_t width,
                          rows_ahead ahead, float *o, int64_t o_stride, int dtype) {
    for (int64_t h = 0; h < heads;) {
        const float *some = weights + h * CBQ_STEP, *by = rescale + h;
        float *to = o + h * o_stride;
        const int64_t left = heads - h;
        if (left >= FEW_HEADS) few_value_heads(some, by, rows, n, width, ahead, to, o_stride, dtype, FEW_HEADS), h += FEW_HEADS;
        else if (FEW_HEADS > 2 && left >= 2) few_value_heads(some, by, rows, n, width, ahead, to, o_stride, dtype, 2), h += 2;
        else few_value_heads(some, by, rows, n, width, ahead, to, o_stride, dtype, 1), h += 1;
        ahead.bytes = 0;
    }
}
static void few_values(const float *weights, const float *rescale, int64_t heads, const uint8_t *const *rows, int64_t n, const cbq_rows *of,
                       rows_ahead ahead, float *o, int64_t o_stride) {
    if (of->dtype == CBQ_F32) few_values_as(weights, rescale, heads, rows, n, of->width, ahead, o, o_stride, CBQ_F32);
    else if (of->dtype == CBQ_F16) few_values_as(weights, rescale, heads, rows, n, of->width, ahead, o, o_stride, CBQ_F16);
    else few_values_as(weights, rescale, heads, rows, n, of->width, ahead, o, o_stride, CBQ_BF16);
}
