// indexer_score: sum over heads of w[h] relu(q[h] . k). A CTA multiplies 64 heads with 64 keys, 32 columns at a time; a thread
// has four heads and eight keys of them.
//
// Not yet run on a GPU: tests run them with threads on the CPU, and the PTX that nvcc makes of them in an interpreter.
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

extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_indexer_score(score_args s) {
    __shared__ float queries[TILE_HEADS * PITCH], keys[TILE_KEYS * PITCH];
    int64_t tiles = (s.k.shape[0] + TILE_KEYS - 1) / TILE_KEYS, b = blockIdx.x / tiles, first = (blockIdx.x - b * tiles) * TILE_KEYS;
    uint32_t head = threadIdx.x % HEAD_LANES * OWN_HEADS, key = threadIdx.x / HEAD_LANES * OWN_KEYS;
    float scores[OWN_KEYS] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (first >= length_of(s.lengths, b, s.k.shape[0])) return; // all of the CTA
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
    for (int j = 0; j < OWN_KEYS; j++) {
        scores[j] = sum_of_lanes(scores[j], HEAD_LANES);
        int64_t n = first + key + j;
        if (head == 0 && n < s.k.shape[0]) put(s.y, place(s.y, b, n), scores[j]);
    }
}

// Keys of their own for every head: a warp to a position.
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_indexer_score_heads(score_args s) {
    int64_t i = thread_of_grid() / 32, b = i / s.k.shape[0], n = i - b * s.k.shape[0], lane = threadIdx.x % 32;
    if (b >= s.q.shape[0] || n >= length_of(s.lengths, b, s.k.shape[0])) return;
    float score = 0;
    for (int64_t h = 0; h < s.q.shape[1]; h++) {
        float sum = 0;
        for (int64_t d = lane; d < s.q.shape[2]; d += 32) sum = fmaf(get(s.q, place(s.q, b, h, d)), get(s.k, place(s.k, n, h, d)), sum);
        score = fmaf(get(s.w, place(s.w, b, h)), relu(sum_of_lanes(sum, 32)), score);
    }
    if (lane == 0) put(s.y, place(s.y, b, n), score);
}

// q [B, H, D], k [n, H or 1, D], w [B, H], lengths [B] or nothing, y float32 [B, n], not to be read past a length.
static cudaError_t indexer_score(const cbq_cuda_operands *o, cudaStream_t stream) {
    score_args s = {o->arrays[0], o->arrays[1], o->arrays[2], o->arrays[3], o->arrays[4]};
    int64_t batch = s.q.shape[0], n = s.k.shape[0];
    if (batch == 0 || n == 0) return cudaSuccess;
    if (s.k.shape[1] != 1) return cu_launch(cbq_indexer_score_heads, ctas_for(batch * n * 32), OPERATOR_THREADS, 0, stream, s);
    return cu_launch(cbq_indexer_score, ctas_for(batch * ((n + TILE_KEYS - 1) / TILE_KEYS), 1), OPERATOR_THREADS, 0, stream, s);
}

extern "C" const cbq_cuda_operator cbq_cuda_indexer[] = {{"indexer_score", 5, 0, NULL, indexer_score}, {NULL, 0, 0, NULL, NULL}};
