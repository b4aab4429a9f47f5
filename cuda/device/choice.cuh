// Scores become integers that sort, with the place in the lower half, so that no two are equal: any sort is then a stable one.
#pragma once
#include "array.cuh"
#include "operators/keys.h"

enum { CHUNK = CBQ_CUDA_MOST_LISTED, MOST_BY_CHUNKS = CBQ_CUDA_MOST_SELECTED };
static_assert(MOST_BY_CHUNKS <= CHUNK / 2, "each round leaves fewer keys than there were");

CBQ_FN int32_t place_of(uint64_t key) { return (int32_t)~(uint32_t)key; } // -1 for 0

// ---- sorting: Batcher's bitonic network (1968), falling ----

// The comparisons of a merge of `size` at distances `stride`, stride / 2, .., 1, of a chunk whose first key is number `first`.
CBQ_FN void merge_chunk(uint64_t *keys, int64_t first, int64_t size, uint32_t stride) {
    for (; stride > 0; stride /= 2) {
        for (uint32_t i = threadIdx.x; i < CHUNK / 2; i += OPERATOR_THREADS) {
            uint32_t low = i / stride * 2 * stride + i % stride, high = low + stride;
            bool falls = ((first + low) & size) == 0;
            uint64_t a = keys[low], b = keys[high];
            if ((a < b) == falls) {
                keys[low] = b;
                keys[high] = a;
            }
        }
        cu_barrier();
    }
}
CBQ_FN void sort_chunk(uint64_t *keys, int64_t first) {
    for (uint32_t size = 2; size <= CHUNK; size *= 2) merge_chunk(keys, first, size, size / 2);
}

// The places of the k largest of n keys (k up to MOST_BY_CHUNKS) in each of `batch` rows, by falling key; -1 for keys of 0. The
// workspace has as many bytes as the other says. (choice.cu)
extern "C" uint64_t cbq_cuda_top_of_keys_room(int64_t batch, int64_t n, int64_t k);
extern "C" cudaError_t cbq_cuda_top_of_keys(const uint64_t *keys, int64_t batch, int64_t n, int64_t k, int32_t *indices, uint64_t *workspace,
                                            cudaStream_t stream);
