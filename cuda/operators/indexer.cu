// indexer_score, and indexer_select: the positions with the largest scores, without the scores in memory.
//
// Not yet run on a GPU: tests run them with threads on the CPU, and the PTX that nvcc makes of them in an interpreter.
#include "choice.cuh"
#include "indexer.cuh"

extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_indexer_score(score_args s) {
    int64_t tiles = (s.k.shape[0] + TILE_KEYS - 1) / TILE_KEYS, b = blockIdx.x / tiles, first = (blockIdx.x - b * tiles) * TILE_KEYS;
    if (first >= length_of(s.lengths, b, s.k.shape[0])) return; // all of the CTA
    float scores[OWN_KEYS];
    score_tile(s, b, first, scores);
#pragma unroll
    for (int j = 0; j < OWN_KEYS; j++) {
        int64_t n = first + own_key() + j;
        if (has_scores() && n < s.k.shape[0]) put(s.y, place(s.y, b, n), scores[j]);
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

// ---- the positions with the largest scores ----

struct select_args {
    score_args s;
    uint64_t *best;   // [B, pieces, k], where there is more than one piece
    int32_t *indices; // [B, k]
    int64_t pieces, each, k; // positions of a piece
};

// A CTA to a piece of the cache, half a chunk of it at a time: the best so far are the first half of `keys`, and the second half is
// sorted among them, if one of these is better than the last of the k.
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_indexer_select(select_args a) {
    enum { HALF = CHUNK / 2 };
    __shared__ uint64_t keys[CHUNK];
    __shared__ uint32_t is_better;
    int64_t b = blockIdx.x / a.pieces, piece = blockIdx.x - b * a.pieces, begin = piece * a.each;
    int64_t end = length_of(a.s.lengths, b, a.s.k.shape[0]);
    if (end > begin + a.each) end = begin + a.each;
    for (uint32_t i = threadIdx.x; i < CHUNK; i += OPERATOR_THREADS) keys[i] = 0;
    for (int64_t from = begin; from < end; from += HALF) {
        if (threadIdx.x == 0) is_better = 0;
        cu_barrier(); // the best are there too
        for (uint32_t tile = 0; tile < HALF; tile += TILE_KEYS) {
            float scores[OWN_KEYS];
            if (from + tile < end) score_tile(a.s, b, from + tile, scores);
            if (!has_scores()) continue;
#pragma unroll
            for (uint32_t j = 0; j < OWN_KEYS; j++) {
                int64_t n = from + tile + own_key() + j;
                uint64_t key = n < end ? choice_key(scores[j], n) : 0;
                keys[HALF + tile + own_key() + j] = key;
                if (key > keys[a.k - 1]) is_better = 1;
            }
        }
        cu_barrier();
        if (is_better) sort_chunk(keys, 0);
        cu_barrier(); // all have seen what is_better is
    }
    cu_barrier();
    for (int64_t i = threadIdx.x; i < a.k; i += OPERATOR_THREADS) {
        if (a.pieces == 1) a.indices[b * a.k + i] = place_of(keys[i]);
        else a.best[(b * a.pieces + piece) * a.k + i] = keys[i];
    }
}

// Pieces of whole halves of a chunk, as many as keep the multiprocessors busy. What is chosen does not depend on it.
static select_args select_of(const cbq_cuda_operands *o) {
    select_args a = {{o->arrays[0], o->arrays[1], o->arrays[2], o->arrays[3]}};
    int64_t batch = a.s.q.shape[0], halves = (a.s.k.shape[0] + CHUNK / 2 - 1) / (CHUNK / 2), wanted = batch ? 4 * (int64_t)o->processors / batch : 1;
    if (wanted > halves) wanted = halves;
    if (wanted < 1) wanted = 1;
    a.each = (halves + wanted - 1) / wanted * (CHUNK / 2);
    a.pieces = halves > 0 ? (a.s.k.shape[0] + a.each - 1) / a.each : 1;
    a.k = o->arrays[4].shape[1];
    a.best = (uint64_t *)o->workspace;
    a.indices = (int32_t *)o->arrays[4].data;
    return a;
}
static uint64_t select_workspace(const cbq_cuda_operands *o) {
    select_args a = select_of(o);
    int64_t batch = a.s.q.shape[0], n = a.pieces * a.k;
    return a.pieces == 1 ? 0 : (uint64_t)(batch * n) * sizeof(uint64_t) + cbq_cuda_top_of_keys_room(batch, n, a.k);
}
// q [B, H, D], k [n, 1, D], w [B, H], lengths [B] or nothing, y int32 [B, k], contiguous; k up to CBQ_CUDA_MOST_SELECTED.
static cudaError_t indexer_select(const cbq_cuda_operands *o, cudaStream_t stream) {
    select_args a = select_of(o);
    int64_t batch = a.s.q.shape[0];
    if (batch == 0 || a.k == 0) return cudaSuccess;
    if (a.k > MOST_BY_CHUNKS || a.s.k.shape[1] != 1) return cudaErrorInvalidValue;
    cudaError_t error = cu_launch(cbq_indexer_select, ctas_for(batch * a.pieces, 1), OPERATOR_THREADS, 0, stream, a);
    if (error != cudaSuccess || a.pieces == 1) return error;
    return cbq_cuda_top_of_keys(a.best, batch, a.pieces * a.k, a.k, a.indices, a.best + batch * a.pieces * a.k, stream);
}

extern "C" const cbq_cuda_operator cbq_cuda_indexer[] = {
    {"indexer_score", 5, 0, NULL, indexer_score},
    {"indexer_select", 5, 0, select_workspace, indexer_select},
    {NULL, 0, 0, NULL, NULL},
};
