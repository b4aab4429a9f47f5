/* The indexer's scores: of each row of a cache the products with all heads' queries, those below 0 as 0, weighted and added up in the
   order of the heads. */
#pragma once
#include "few.h"
#include "panel.h"

/* scores[i] += sum over some heads of w[h] * max(0, q[h] . key i), for TILE_W keys. */
CBQ_FN void index_tile(const float *q, int64_t q_stride, const float *w, const float *keys, int64_t depth, float *scores, int heads) {
    tile_sums sum;
    F total[TILE_V];
    CBQ_UNROLL_ALL
    for (int h = 0; h < heads; h++)
        CBQ_UNROLL_ALL
        for (int v = 0; v < TILE_V; v++) sum[h][v] = f_zero();
    tile_product(sum, heads, q, q_stride, keys, depth);
    CBQ_UNROLL_ALL
    for (int v = 0; v < TILE_V; v++) total[v] = f_ld(scores + v * CBQ_LANES);
    CBQ_UNROLL_ALL
    for (int h = 0; h < heads; h++) {
        const F weight = f_set1(w[h]);
        CBQ_UNROLL_ALL
        for (int v = 0; v < TILE_V; v++) total[v] = f_fma(weight, f_max(f_zero(), sum[h][v]), total[v]); /* NaN stays */
    }
    CBQ_UNROLL_ALL
    for (int v = 0; v < TILE_V; v++) f_st_f32(scores + v * CBQ_LANES, total[v]);
}

/* n rows through a panel, for heads that share them. Those of the next step follow their pointers. */
static void index_panel(const cbq_index_args *a, const uint8_t *const *rows, int64_t n, int64_t head, int64_t heads, float *scores) {
    const int64_t whole = (n + TILE_W - 1) / TILE_W * TILE_W, depth = cbq_padded_width(a->k.width);
    float *keys = a->scratch, *values = keys + depth * CBQ_STEP;
    rows_to_values(rows, whole, &a->k, (rows_ahead){rows + CBQ_STEP, cbq_row_bytes(&a->k)}, values);
    values_to_keys(values, whole, a->k.width, keys, depth, 0);
    for (int64_t i = 0; i < n; i += TILE_W, keys += depth * TILE_W)
        for (int64_t t = 0; t < tile_count(heads); t++) {
            const int64_t h = head + tile_begin(heads, t);
            TILE_SWITCH(tile_begin(heads, t + 1) - tile_begin(heads, t), index_tile, a->q + h * a->q_stride, a->q_stride, a->w + h, keys, depth,
                        scores + i)
        }
}

/* products[i] = max(0, q[h + i] . key[h + i]) for so many heads; NaN stays. */
CBQ_FN void index_pairs(const cbq_index_args *a, const uint8_t *key, int64_t h, int64_t heads, int dtype, float products[FEW_SUMS]) {
    F sum[FEW_SUMS];
    for (int64_t i = 0; i < heads; i++) {
        cbq_prefetch((uintptr_t)key + (uintptr_t)((h + i) * a->of_head + CBQ_AHEAD), cbq_row_bytes(&a->k));
        sum[i] = row_product(a->q + (h + i) * a->q_stride, key + (h + i) * a->of_head, a->k.width, dtype);
    }
    for (int64_t i = heads; i < FEW_SUMS; i++) sum[i] = f_zero();
    for (int i = 0; i < FEW_SUMS; i += CBQ_LANES) f_st_f32(products + i, f_max(f_zero(), f_sum_each(sum + i)));
}
/* A key of each head: they are read in their order, each once. */
CBQ_FN float index_key(const cbq_index_args *a, const uint8_t *key, int dtype) {
    float score = 0, products[FEW_SUMS];
    for (int64_t h = 0; h < a->heads; h += FEW_SUMS) {
        const int64_t heads = a->heads - h < FEW_SUMS ? a->heads - h : FEW_SUMS;
        index_pairs(a, key, h, heads, dtype, products);
        for (int64_t i = 0; i < heads; i++) score += a->w[h + i] * products[i];
    }
    return score;
}
static void index_own_keys(const cbq_index_args *a, const uint8_t *const *rows, int64_t n, float *scores) {
    for (int64_t i = 0; i < n; i++) {
        if (a->k.dtype == CBQ_F32) scores[i] = index_key(a, rows[i], CBQ_F32);
        else if (a->k.dtype == CBQ_F16) scores[i] = index_key(a, rows[i], CBQ_F16);
        else scores[i] = index_key(a, rows[i], CBQ_BF16);
    }
}

/* Scores of the rows i .. i + n - 1, n <= CBQ_STEP. */
CBQ_FN void index_step(const cbq_index_args *a, int64_t i, int64_t n, float *scores) {
    const uint8_t *rows[2 * CBQ_STEP];
    const int64_t last = a->end - 1, here = i + n - 1;
    for (int64_t j = 0; j < CBQ_STEP; j++) {
        const int64_t next = i + CBQ_STEP + j;
        rows[j] = a->k.data + (i + j < here ? i + j : here) * a->k.stride;
        rows[CBQ_STEP + j] = a->k.data + (next < last ? next : last) * a->k.stride;
        scores[j] = 0;
    }
    if (a->heads == 0) return; /* keys of no heads have no memory */
    if (a->of_head == 0) {
        index_panel(a, rows, n, 0, a->heads, scores);
    } else if (a->k.width % CBQ_LANES == 0) {
        index_own_keys(a, rows, n, scores);
    } else {
        for (int64_t h = 0; h < a->heads; h++) {
            index_panel(a, rows, n, h, 1, scores);
            for (int64_t j = 0; j < 2 * CBQ_STEP; j++) rows[j] += a->of_head;
        }
    }
}

static void index_scores(const cbq_index_args *a) {
    float scores[CBQ_STEP];
    for (int64_t i = a->begin; i < a->end; i += CBQ_STEP) {
        const int64_t n = a->end - i < CBQ_STEP ? a->end - i : CBQ_STEP;
        index_step(a, i, n, scores);
        memcpy(a->scores + (i - a->begin), scores, (size_t)n * 4);
    }
}
