// Scores of 64 keys, for operators of the indexer: sum over heads of w[h] relu(q[h] . k). A CTA multiplies 64 heads with the keys, 32
// columns at a time; a thread has four heads and eight keys of them.
#pragma once
#include "array.cuh"

#include <math.h>

enum { TILE_HEADS = 64, TILE_KEYS = 64, TILE_WIDTH = 32, PITCH = TILE_WIDTH + 1, OWN_HEADS = 4, OWN_KEYS = 8, HEAD_LANES = TILE_HEADS / OWN_HEADS };
static_assert(HEAD_LANES * (TILE_KEYS / OWN_KEYS) == OPERATOR_THREADS && HEAD_LANES == 16, "half a warp to the heads of a key");

struct score_args {
    cbq_cuda_array q, k, w, lengths, y; // [B, H, D], [n, H or 1, D], [B, H], [B] or nothing, float32 [B, n]
};

CBQ_FN float relu(float x) { return x < 0 ? 0 : x; } // NaN stays

CBQ_FN void stage_columns(float *to, const cbq_cuda_array &a, int64_t first, int64_t rows, int64_t step, int64_t base, int64_t from, int64_t width) {
    for (uint32_t i = threadIdx.x; i < 64 * TILE_WIDTH; i += OPERATOR_THREADS) {
        int64_t row = first + i / TILE_WIDTH, d = from + i % TILE_WIDTH;
        to[i / TILE_WIDTH * PITCH + i % TILE_WIDTH] = row < rows && d < width ? get(a, base + row * step + d * a.strides[2]) : 0;
    }
}

// The keys of a thread are those from own_key() on; the threads of has_scores() have their scores, from position `first` on.
CBQ_FN uint32_t own_key() { return threadIdx.x / HEAD_LANES * OWN_KEYS; }
CBQ_FN bool has_scores() { return threadIdx.x % HEAD_LANES == 0; }
CBQ_FN void score_tile(const score_args &s, int64_t b, int64_t first, float scores[OWN_KEYS]) {
    __shared__ float queries[TILE_HEADS * PITCH], keys[TILE_KEYS * PITCH];
    uint32_t head = threadIdx.x % HEAD_LANES * OWN_HEADS, key = own_key();
#pragma unroll
    for (int j = 0; j < OWN_KEYS; j++) scores[j] = 0;
    for (int64_t heads = 0; heads < s.q.shape[1]; heads += TILE_HEADS) {
        float sums[OWN_HEADS][OWN_KEYS];
#pragma unroll
        for (int i = 0; i < OWN_HEADS * OWN_KEYS; i++) sums[i / OWN_KEYS][i % OWN_KEYS] = 0;
        for (int64_t from = 0; from < s.q.shape[2]; from += TILE_WIDTH) {
            cu_barrier(); // all are done with the columns before
            stage_columns(queries, s.q, heads, s.q.shape[1], s.q.strides[1], b * s.q.strides[0], from, s.q.shape[2]);
            stage_columns(keys, s.k, first, s.k.shape[0], s.k.strides[0], 0, from, s.q.shape[2]);
            cu_barrier();
            for (int d = 0; d < TILE_WIDTH; d++) {
                float q[OWN_HEADS], k[OWN_KEYS];
#pragma unroll
                for (int i = 0; i < OWN_HEADS; i++) q[i] = queries[(head + i) * PITCH + d];
#pragma unroll
                for (int i = 0; i < OWN_KEYS; i++) k[i] = keys[(key + i) * PITCH + d];
#pragma unroll
                for (int i = 0; i < OWN_HEADS; i++)
#pragma unroll
                    for (int j = 0; j < OWN_KEYS; j++) sums[i][j] = fmaf(q[i], k[j], sums[i][j]);
            }
        }
#pragma unroll
        for (int i = 0; i < OWN_HEADS; i++) {
            if (heads + head + i >= s.q.shape[1]) break;
            float weight = get(s.w, place(s.w, b, heads + head + i));
#pragma unroll
            for (int j = 0; j < OWN_KEYS; j++) scores[j] = fmaf(weight, relu(sums[i][j]), scores[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < OWN_KEYS; j++) scores[j] = sum_of_lanes(scores[j], HEAD_LANES);
}
