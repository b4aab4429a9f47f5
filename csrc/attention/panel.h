/* A step of a cache, CBQ_STEP rows, as panels: for many heads, so that a number is loaded and converted once for all of them.

     values: blocks of TILE_W columns, in each a line for each row           the second operand of weights x values
     keys:   blocks of TILE_W rows, in each a line for each column           the second operand of queries x keys

   Keys are made of values: a row goes to a values panel first, and squares of it are turned. */
#pragma once
#include "attention.h"
#include "product.h"

CBQ_FN void line_to_panel(const uint8_t *row, int64_t width, int dtype, float *to) {
    const int size = cbq_float_bytes(dtype);
    for (int64_t begin = 0; begin < width; begin += TILE_W, to += CBQ_STEP * TILE_W)
        for (int v = 0; v < TILE_V; v++) {
            const int64_t at = begin + v * CBQ_LANES, left = width - at;
            const uint8_t *p = row + at * size;
            F f = left >= CBQ_LANES ? f_ld_as(p, dtype) : left > 0 ? f_ld_first(p, left, dtype) : f_zero();
            f_st_f32(to + v * CBQ_LANES, f);
        }
}
CBQ_FN void lines_to_panel(const uint8_t *const *rows, int64_t n, int64_t width, int dtype, rows_ahead ahead, float *to) {
    for (int64_t i = 0; i < n; i++) {
        ask_for(ahead, i, 1);
        line_to_panel(rows[i], width, dtype, to + i * TILE_W);
    }
}
static void rows_to_values(const uint8_t *const *rows, int64_t n, const cbq_rows *of, rows_ahead ahead, float *to) {
    if (of->dtype == CBQ_F32) lines_to_panel(rows, n, of->width, CBQ_F32, ahead, to);
    else if (of->dtype == CBQ_F16) lines_to_panel(rows, n, of->width, CBQ_F16, ahead, to);
    else lines_to_panel(rows, n, of->width, CBQ_BF16, ahead, to);
}

/* n rows (whole vectors of them) of a values panel, to columns from `first` on of a keys panel of `depth` columns. */
static void values_to_keys(const float *values, int64_t n, int64_t width, float *keys, int64_t depth, int64_t first) {
    for (int64_t row = 0; row < n; row += CBQ_LANES) {
        float *to = keys + (row / TILE_W * depth + first) * TILE_W + row % TILE_W;
        for (int64_t column = 0; column < width; column += 8) {
            const float *from = values + (column / TILE_W * CBQ_STEP + row) * TILE_W + column % TILE_W;
            f_transpose(from, TILE_W, to + column * TILE_W, TILE_W);
        }
    }
}

/* scores[h][i] = q[h] . key i, `scores` being rows of CBQ_STEP. */
CBQ_FN void score_tile(const float *q, int64_t q_stride, const float *keys, int64_t depth, float *scores, int heads) {
    tile_sums sum;
    CBQ_UNROLL_ALL
    for (int h = 0; h < heads; h++)
        CBQ_UNROLL_ALL
        for (int v = 0; v < TILE_V; v++) sum[h][v] = f_zero();
    tile_product(sum, heads, q, q_stride, keys, depth);
    CBQ_UNROLL_ALL
    for (int h = 0; h < heads; h++)
        CBQ_UNROLL_ALL
        for (int v = 0; v < TILE_V; v++) f_st_f32(scores + h * CBQ_STEP + v * CBQ_LANES, sum[h][v]);
}
static void panel_scores(const float *q, int64_t q_stride, int64_t heads, const float *keys, int64_t depth, int64_t n, float *scores) {
    for (int64_t i = 0; i < n; i += TILE_W, keys += depth * TILE_W)
        for (int64_t t = 0; t < tile_count(heads); t++) {
            const int64_t h = tile_begin(heads, t);
            TILE_SWITCH(tile_begin(heads, t + 1) - h, score_tile, q + h * q_stride, q_stride, keys, depth, scores + h * CBQ_STEP + i)
        }
}

/* o[h] = o[h] * rescale[h] + sum over i of weights[h][i] * value i. */
CBQ_FN void value_tile(const float *weights, const float *rescale, const float *values, int64_t n, float *o, int64_t o_stride, int heads) {
    tile_sums sum;
    CBQ_UNROLL_ALL
    for (int h = 0; h < heads; h++)
        CBQ_UNROLL_ALL
        for (int v = 0; v < TILE_V; v++) sum[h][v] = f_mul(f_ld(o + h * o_stride + v * CBQ_LANES), f_set1(rescale[h]));
    tile_product(sum, heads, weights, CBQ_STEP, values, n);
    CBQ_UNROLL_ALL
    for (int h = 0; h < heads; h++)
        CBQ_UNROLL_ALL
        for (int v = 0; v < TILE_V; v++) f_st_f32(o + h * o_stride + v * CBQ_LANES, sum[h][v]);
}
static void panel_values(const float *weights, const float *rescale, int64_t heads, const float *values, int64_t n, int64_t width, float *o,
                         int64_t o_stride) {
    for (int64_t i = 0; i < width; i += TILE_W, values += CBQ_STEP * TILE_W)
        for (int64_t t = 0; t < tile_count(heads); t++) {
            const int64_t h = tile_begin(heads, t);
            TILE_SWITCH(tile_begin(heads, t + 1) - h, value_tile, weights + h * CBQ_STEP, rescale + h, values, n, o + h * o_stride + i, o_stride)
        }
}
