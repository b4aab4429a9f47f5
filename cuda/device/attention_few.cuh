// Few heads to a KV head, and any type: plain float32 arithmetic.
//
// A CTA has up to HEADS heads of one KV head and a piece of the cache, which it goes through KEYS rows at a time: their logits, the
// weights relative to the largest logit so far, and the sums of weighted values, a thread to columns OPERATOR_THREADS apart.
#pragma once
#include "attention.cuh"

enum { HEADS = 8, KEYS = 32, WARPS = OPERATOR_THREADS / 32 };
static_assert(KEYS == 32 && HEADS == 2 * WARPS, "a lane to a key, two heads to a warp");

CBQ_FN float largest_of_warp(float v) { // NaN is left out: it will be in the sum of weights
    for (int lanes = 16; lanes > 0; lanes /= 2) v = f_max(cu_shuffle_xor(v, lanes), v == v ? v : -INFINITY);
    return v;
}

// What a CTA keeps in shared memory: the queries and a tile of weights.
struct attention_tile {
    float weights[HEADS][KEYS], largest[HEADS], total[HEADS], kept[HEADS];
    int64_t rows[KEYS];
};

// Products of `n` columns of HEADS queries with a row, added to a lane's sums.
CBQ_FN void add_products(const cbq_cuda_array &k, int64_t row, int64_t n, const float *queries, int64_t width, float sums[HEADS]) {
    for (int64_t d = threadIdx.x % 32; d < n; d += 32) {
        float key = get(k, row + d * k.strides[3]);
#pragma unroll
        for (int h = 0; h < HEADS; h++) sums[h] = fmaf(queries[h * width + d], key, sums[h]);
    }
}

// Logits of a tile: a warp has every fourth key.
CBQ_FN void logits(const attention_args &s, int64_t b, int64_t kv, const float *queries, attention_tile &t) {
    int64_t width = columns(s);
    for (int key = (int)threadIdx.x / 32; key < KEYS; key += WARPS) {
        int64_t row = t.rows[key];
        float sums[HEADS] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (row >= 0) {
            add_products(s.k, place(s.k, b, kv, row), s.q.shape[2], queries, width, sums);
            if (s.k2.data) add_products(s.k2, place(s.k2, b, kv, row), s.q2.shape[2], queries + s.q.shape[2], width, sums);
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            float logit = sum_of_lanes(sums[h], 32) * s.scale;
            if (threadIdx.x % 32 == 0) t.weights[h][key] = row >= 0 ? logit : -INFINITY;
        }
    }
}

// Logits to weights, and how much of the sums so far is kept, now that the largest logit may be another.
CBQ_FN void weigh(attention_tile &t) {
    int lane = threadIdx.x % 32;
    for (int h = (int)threadIdx.x / 32; h < HEADS; h += WARPS) {
        float logit = t.weights[h][lane], before = t.largest[h], now = f_max(largest_of_warp(logit), before);
        float weight = logit == -INFINITY ? 0 : f_exp(logit - now), sum = sum_of_lanes(weight, 32);
        t.weights[h][lane] = weight;
        if (lane == 0) {
            float kept = before == now ? 1 : f_exp(before - now);
            t.kept[h] = kept;
            t.total[h] = fmaf(t.total[h], kept, sum);
            t.largest[h] = now;
        }
    }
}

template <int COLUMNS> CBQ_FN void add_values(const attention_args &s, int64_t b, int64_t kv, const attention_tile &t, float sums[HEADS][COLUMNS]) {
#pragma unroll
    for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) sums[h][j] *= t.kept[h];
    for (int key = 0; key < KEYS; key++) {
        if (t.rows[key] < 0) continue;
        int64_t row = place(s.v, b, kv, t.rows[key]);
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            int64_t d = threadIdx.x + j * OPERATOR_THREADS;
            float value = d < s.v.shape[3] ? get(s.v, row + d * s.v.strides[3]) : 0;
#pragma unroll
            for (int h = 0; h < HEADS; h++) // a row of weight 0 adds nothing, whatever its value is
                if (t.weights[h][key] != 0) sums[h][j] = fmaf(t.weights[h][key], value, sums[h][j]);
        }
    }
}

template <int COLUMNS> CBQ_FN void attend(const attention_args &s) {
    CU_DYNAMIC_SHARED(shared);
    __shared__ attention_tile t;
    float *queries = (float *)shared;
    const attention_place at = find_place<HEADS>(s);
    int64_t width = columns(s), b = at.b, kv = at.kv;
    for (int64_t i = threadIdx.x; i < HEADS * width; i += OPERATOR_THREADS) queries[i] = query(s, at, i / width, i % width);
    if (threadIdx.x < HEADS) {
        t.largest[threadIdx.x] = -INFINITY;
        t.total[threadIdx.x] = 0;
    }
    float sums[HEADS][COLUMNS];
#pragma unroll
    for (int i = 0; i < HEADS * COLUMNS; i++) sums[i / COLUMNS][i % COLUMNS] = 0;
    int64_t end = entries(s, b), tiles = (end + KEYS - 1) / KEYS;
    for (int64_t tile = tiles * at.piece / s.pieces; tile < tiles * (at.piece + 1) / s.pieces; tile++) {
        cu_barrier(); // all are done with the tile before
        if (threadIdx.x < KEYS) t.rows[threadIdx.x] = row_of_entry(s, b, tile * KEYS + threadIdx.x, end);
        cu_barrier();
        logits(s, b, kv, queries, t);
        cu_barrier();
        weigh(t);
        cu_barrier();
        add_values<COLUMNS>(s, b, kv, t, sums);
    }
    cu_barrier();
    for (int h = 0; h < HEADS; h++) {
        if (h >= at.heads) break;
        float *part = part_of(s, at, h);
        if (threadIdx.x == 0) {
            part[0] = t.largest[h];
            part[1] = t.total[h];
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            int64_t d = threadIdx.x + j * OPERATOR_THREADS;
            if (d < s.v.shape[3]) part[2 + d] = sums[h][j];
        }
    }
}
