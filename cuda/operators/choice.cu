// The largest of many: the indexer's top k, and the experts of a token.
//
// Not yet run on a GPU: tests run them with threads on the CPU, and the PTX that nvcc makes of them in an interpreter.
#include "choice.cuh"
#include "lanes.cuh"

CBQ_FN uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

struct top_args {
    cbq_cuda_array score, lengths;
    const uint64_t *from; // [B, n], NULL: from `score`
    uint64_t *to;         // [B, chunks * k], or [B, padded]
    int32_t *indices;     // [B, k], of the last round
    int64_t n, padded, stride, size;
    uint32_t k;
};

CBQ_FN uint64_t key_of(const top_args &s, int64_t b, int64_t i) {
    if (i >= s.n) return 0; // below all others
    if (s.from) return s.from[b * s.n + i];
    return i < length_of(s.lengths, b, s.n) ? choice_key(get(s.score, place(s.score, b, i)), i) : 0;
}
static __host__ __device__ inline int64_t chunks_of(int64_t n) { return n > CHUNK ? (n + CHUNK - 1) / CHUNK : 1; }

// k of at most half a chunk: each chunk keeps its k largest, and these are the keys of the next round, until one chunk is left.
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_topk_chunk(top_args s) {
    __shared__ uint64_t keys[CHUNK];
    int64_t chunks = chunks_of(s.n), b = blockIdx.x / chunks, c = blockIdx.x - b * chunks;
    for (uint32_t i = threadIdx.x; i < CHUNK; i += OPERATOR_THREADS) keys[i] = key_of(s, b, c * CHUNK + i);
    cu_barrier();
    sort_chunk(keys, 0);
    for (uint32_t i = threadIdx.x; i < s.k; i += OPERATOR_THREADS) {
        if (chunks == 1) s.indices[b * s.k + i] = place_of(keys[i]);
        else s.to[(b * chunks + c) * s.k + i] = keys[i];
    }
}

// Larger k: all keys are sorted, in memory where a distance is larger than a chunk.
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_sort_chunks(top_args s) {
    __shared__ uint64_t keys[CHUNK];
    int64_t chunks = s.padded / CHUNK, b = blockIdx.x / chunks, first = (blockIdx.x - b * chunks) * CHUNK;
    for (uint32_t i = threadIdx.x; i < CHUNK; i += OPERATOR_THREADS) keys[i] = key_of(s, b, first + i);
    cu_barrier();
    sort_chunk(keys, first);
    for (uint32_t i = threadIdx.x; i < CHUNK; i += OPERATOR_THREADS) s.to[b * s.padded + first + i] = keys[i];
}
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_sort_far(top_args s) {
    int64_t i = thread_of_grid(), half = s.padded / 2, b = i / half, low = (i - b * half) / s.stride * 2 * s.stride + (i - b * half) % s.stride;
    if (b >= s.score.shape[0]) return;
    uint64_t *keys = s.to + b * s.padded, a = keys[low], c = keys[low + s.stride];
    if ((a < c) == ((low & s.size) == 0)) {
        keys[low] = c;
        keys[low + s.stride] = a;
    }
}
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_sort_near(top_args s) {
    __shared__ uint64_t keys[CHUNK];
    int64_t chunks = s.padded / CHUNK, b = blockIdx.x / chunks, first = (blockIdx.x - b * chunks) * CHUNK;
    uint64_t *all = s.to + b * s.padded + first;
    for (uint32_t i = threadIdx.x; i < CHUNK; i += OPERATOR_THREADS) keys[i] = all[i];
    cu_barrier();
    merge_chunk(keys, first, s.size, CHUNK / 2);
    for (uint32_t i = threadIdx.x; i < CHUNK; i += OPERATOR_THREADS) all[i] = keys[i];
}
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_sorted_places(top_args s) {
    int64_t i = thread_of_grid(), b = i / s.k, j = i - b * s.k;
    if (b < s.score.shape[0]) s.indices[i] = j < s.padded ? place_of(s.to[b * s.padded + j]) : -1;
}

static int64_t padded_of(int64_t n) {
    int64_t padded = CHUNK;
    while (padded < n) padded *= 2;
    return padded;
}
extern "C" uint64_t cbq_cuda_top_of_keys_room(int64_t batch, int64_t n, int64_t k) {
    int64_t first = chunks_of(n) * k; // and the second round's beside them
    return (uint64_t)(batch * (first + chunks_of(first) * k)) * sizeof(uint64_t);
}
static uint64_t topk_workspace(const cbq_cuda_operands *o) {
    int64_t batch = o->arrays[0].shape[0], n = o->arrays[0].shape[1], k = o->arrays[2].shape[1];
    if (k > MOST_BY_CHUNKS) return (uint64_t)(batch * padded_of(n)) * sizeof(uint64_t);
    return cbq_cuda_top_of_keys_room(batch, n, k);
}

static cudaError_t top_by_chunks(top_args s, uint64_t *workspace, cudaStream_t stream) {
    int64_t batch = s.score.shape[0], first = chunks_of(s.n) * s.k;
    for (bool odd = false;; odd = !odd) {
        int64_t chunks = chunks_of(s.n);
        s.to = workspace + (odd ? batch * first : 0);
        cudaError_t error = cu_launch(cbq_topk_chunk, ctas_for(batch * chunks, 1), OPERATOR_THREADS, 0, stream, s);
        if (error != cudaSuccess || chunks <= 1) return error;
        s.from = s.to;
        s.n = chunks * s.k;
    }
}
extern "C" cudaError_t cbq_cuda_top_of_keys(const uint64_t *keys, int64_t batch, int64_t n, int64_t k, int32_t *indices, uint64_t *workspace,
                                            cudaStream_t stream) {
    top_args s = {};
    s.score.shape[0] = batch;
    s.from = keys;
    s.n = n;
    s.k = (uint32_t)k;
    s.indices = indices;
    return top_by_chunks(s, workspace, stream);
}
static cudaError_t top_by_sorting(top_args s, uint64_t *workspace, cudaStream_t stream) {
    int64_t batch = s.score.shape[0], all = batch * (s.padded = padded_of(s.n));
    s.to = workspace;
    cudaError_t error = cu_launch(cbq_sort_chunks, ctas_for(all, CHUNK), OPERATOR_THREADS, 0, stream, s);
    for (s.size = 2 * CHUNK; s.size <= s.padded; s.size *= 2) {
        for (s.stride = s.size / 2; s.stride >= CHUNK && error == cudaSuccess; s.stride /= 2)
            error = cu_launch(cbq_sort_far, ctas_for(all / 2), OPERATOR_THREADS, 0, stream, s);
        if (error == cudaSuccess) error = cu_launch(cbq_sort_near, ctas_for(all, CHUNK), OPERATOR_THREADS, 0, stream, s);
    }
    return error != cudaSuccess ? error : cu_launch(cbq_sorted_places, ctas_for(batch * s.k), OPERATOR_THREADS, 0, stream, s);
}
// score [B, n], lengths [B] or nothing, y int32 [B, k], contiguous; k <= n where there are no lengths.
static cudaError_t indexer_topk(const cbq_cuda_operands *o, cudaStream_t stream) {
    top_args s = {o->arrays[0], o->arrays[1]};
    s.n = s.score.shape[1];
    s.k = (uint32_t)o->arrays[2].shape[1];
    s.indices = (int32_t *)o->arrays[2].data;
    if (s.k == 0 || s.score.shape[0] == 0) return cudaSuccess;
    return (s.k <= MOST_BY_CHUNKS ? top_by_chunks : top_by_sorting)(s, (uint64_t *)o->workspace, stream);
}

// ---- the list that attention gathers ----

struct list_args {
    cbq_cuda_array topk, each_n, each_window; // [B, k], [B] or nothing, [B] or nothing
    int32_t *list;                            // [B, m]
    int64_t m, n, window;                     // of all lists, or what those of each may be at most
};

// A CTA to a list. Positions before the window are sorted, those that repeat are taken out, and the window follows them.
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_gather_list(list_args s) {
    __shared__ uint64_t keys[CHUNK];
    __shared__ uint32_t kept;
    enum { OWN = CHUNK / OPERATOR_THREADS };
    int64_t n = length_of(s.each_n, blockIdx.x, s.n), window = length_of(s.each_window, blockIdx.x, s.window);
    const int64_t first_of_window = n > window ? n - window : 0;
    const uint64_t lowest_first = (uint64_t)1 << 32; // position p is the key lowest_first - p, and 0 is no position
    for (uint32_t i = threadIdx.x; i < CHUNK; i += OPERATOR_THREADS) {
        int64_t p = -1, at = i < s.topk.shape[1] ? place(s.topk, blockIdx.x, i) : 0;
        if (i < s.topk.shape[1]) p = integer(s.topk, at);
        keys[i] = p >= 0 && p < first_of_window ? lowest_first - (uint64_t)p : 0;
    }
    if (threadIdx.x == 0) kept = 0;
    cu_barrier();
    sort_chunk(keys, 0);
    uint64_t own[OWN];
#pragma unroll
    for (uint32_t j = 0; j < OWN; j++) {
        uint32_t i = threadIdx.x + j * OPERATOR_THREADS;
        own[j] = i > 0 && keys[i] == keys[i - 1] ? 0 : keys[i];
    }
    cu_barrier();
#pragma unroll
    for (uint32_t j = 0; j < OWN; j++) keys[threadIdx.x + j * OPERATOR_THREADS] = own[j];
    cu_barrier();
    sort_chunk(keys, 0);
    for (uint32_t i = threadIdx.x; i < CHUNK; i += OPERATOR_THREADS)
        if (keys[i] != 0 && (i + 1 == CHUNK || keys[i + 1] == 0)) kept = i + 1; // one thread finds it
    cu_barrier();
    int32_t *list = s.list + blockIdx.x * s.m;
    for (int64_t i = threadIdx.x; i < s.m; i += OPERATOR_THREADS) {
        int64_t p = i < kept ? (int64_t)(lowest_first - keys[i]) : first_of_window + i - kept;
        list[i] = p < n ? (int32_t)p : -1;
    }
}
// topk [B, k], k <= CHUNK, n_kv [B] and window [B] or nothing, each int32 or int64, y int32 [B, m] contiguous; numbers: n_kv, window,
// where they are not arrays.
static cudaError_t gather_list(const cbq_cuda_operands *o, cudaStream_t stream) {
    list_args s = {o->arrays[0], o->arrays[1], o->arrays[2], (int32_t *)o->arrays[3].data, o->arrays[3].shape[1]};
    s.n = s.each_n.data ? INT32_MAX : (int64_t)o->numbers[0];
    s.window = s.each_window.data ? INT32_MAX : (int64_t)o->numbers[1];
    if (s.topk.shape[0] == 0 || s.m == 0) return cudaSuccess;
    if (s.topk.shape[1] > CHUNK) return cudaErrorInvalidValue;
    return cu_launch(cbq_gather_list, ctas_for(s.topk.shape[0], 1), OPERATOR_THREADS, 0, stream, s);
}

// ---- experts ----

struct route_choice {
    cbq_cuda_array logits, bias, weights;
    int32_t *ids; // [T, k]
    int k, normalize, sigmoid;
    float scale;
};

CBQ_FN float unbiased_score(const route_choice &s, int64_t t, int64_t e) {
    float x = get(s.logits, place(s.logits, t, e));
    return s.sigmoid ? f_sigmoid(x) : f_sqrt_softplus(x);
}

CBQ_FN uint64_t largest_of_cta(uint64_t key) {
    __shared__ uint64_t of_warp[OPERATOR_THREADS / 32];
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        uint32_t low = cu_shuffle_xor_bits((uint32_t)key, lanes), high = cu_shuffle_xor_bits((uint32_t)(key >> 32), lanes);
        key = larger(key, (uint64_t)high << 32 | low);
    }
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = key;
    cu_barrier();
    for (int i = 0; i < OPERATOR_THREADS / 32; i++) key = larger(key, of_warp[i]);
    cu_barrier();
    return key;
}

// A CTA to a token. Each turn finds the largest key below the last one: nothing is taken out, so nothing is stored. Scores are worked
// out once, into shared memory.
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_route(route_choice s) {
    CU_DYNAMIC_SHARED(shared);
    uint64_t *keys = (uint64_t *)shared, last = ~(uint64_t)0;
    int64_t t = blockIdx.x, experts = s.logits.shape[1];
    for (int64_t e = threadIdx.x; e < experts; e += OPERATOR_THREADS)
        keys[e] = choice_key(unbiased_score(s, t, e) + get(s.bias, place(s.bias, e)), e);
    float total = 0;
    for (int j = 0; j < s.k; j++) {
        uint64_t best = 0;
        for (int64_t e = threadIdx.x; e < experts; e += OPERATOR_THREADS) // its own keys only: no barrier is needed
            if (keys[e] < last) best = larger(best, keys[e]);
        last = largest_of_cta(best);
        int32_t id = place_of(last);
        if (threadIdx.x == 0) s.ids[t * s.k + j] = id;
        if (s.normalize) total += unbiased_score(s, t, id);
    }
    if (total == 0) total = 1;
    cu_barrier(); // the ids
    for (int j = (int)threadIdx.x; j < s.k; j += OPERATOR_THREADS) {
        float weight = unbiased_score(s, t, s.ids[t * s.k + j]);
        put(s.weights, place(s.weights, t, j), (s.normalize ? weight / total : weight) * s.scale);
    }
}
// logits [T, E], bias [E], ids int32 [T, k] contiguous, weights [T, k]; numbers: scale, normalize, sigmoid.
static cudaError_t route(const cbq_cuda_operands *o, cudaStream_t stream) {
    route_choice s = {o->arrays[0], o->arrays[1], o->arrays[3], (int32_t *)o->arrays[2].data, (int)o->arrays[2].shape[1]};
    s.scale = (float)o->numbers[0];
    s.normalize = o->numbers[1] != 0;
    s.sigmoid = o->numbers[2] != 0;
    if (s.logits.shape[0] == 0 || s.k == 0) return cudaSuccess;
    return cu_launch(cbq_route, ctas_for(s.logits.shape[0], 1), OPERATOR_THREADS, (size_t)s.logits.shape[1] * sizeof(uint64_t), stream, s);
}

extern "C" const cbq_cuda_operator cbq_cuda_choice[] = {
    {"indexer_topk", 3, 0, topk_workspace, indexer_topk},
    {"gather_list", 4, 2, NULL, gather_list},
    {"route", 4, 3, NULL, route},
    {NULL, 0, 0, NULL, NULL},
};
