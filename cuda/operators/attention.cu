// Attention of one token over a cache, in pieces of the cache whose partial results are merged once: what is called split-KV
// or flash decoding (Dao et al. 2023).
//
// A CTA has up to HEADS heads of one KV head and a piece of the cache, which it goes through KEYS rows at a time: their logits, the
// weights relative to the largest logit so far, and the sums of weighted values, a thread to columns THREADS apart. Plain float32
// arithmetic: no tensor cores yet.
//
// Not yet run on a GPU: tests run them with threads on the CPU, and the PTX that nvcc makes of them in an interpreter.
#include "array.cuh"
#include "lanes.cuh"

enum { HEADS = 8, KEYS = 32, WARPS = OPERATOR_THREADS / 32, MOST_PIECES = 256, MOST_COLUMNS = 8 * OPERATOR_THREADS };
static_assert(KEYS == 32 && HEADS == 2 * WARPS, "a lane to a key, two heads to a warp");

struct attention_args {
    cbq_cuda_array q, k, v;             // [B, H, D], [B, Hkv, n, D], [B, Hkv, n, Dv]
    cbq_cuda_array q2, k2;              // [B, H, R], [B, Hkv, n, R]: more columns of both, or nothing
    cbq_cuda_array sink, lengths, list; // [H], [B], [B, n_sel], or nothing
    cbq_cuda_array y;                   // [B, H, Dv]
    float *parts;                       // [B, H, pieces, 2 + Dv]: largest logit, sum of weights, sums of values
    float scale;
    int pieces, chunks; // of the cache; of HEADS heads
};

CBQ_FN int64_t integer(const cbq_cuda_array &a, int64_t at) {
    return a.type == CBQ_CUDA_I64 ? ((const int64_t *)a.data)[at] : ((const int32_t *)a.data)[at];
}
CBQ_FN int64_t columns(const attention_args &s) { return s.q.shape[2] + (s.q2.data ? s.q2.shape[2] : 0); }

// Entries of the cache, or of the list, that this sequence has, and the row of the cache of one: -1 where there is none.
CBQ_FN int64_t entries(const attention_args &s, int64_t b) {
    if (s.list.data) return s.list.shape[1];
    return s.lengths.data ? integer(s.lengths, place(s.lengths, b)) : s.k.shape[2];
}
CBQ_FN int64_t row_of_entry(const attention_args &s, int64_t b, int64_t i, int64_t end) {
    if (i >= end) return -1;
    if (!s.list.data) return i;
    int64_t row = integer(s.list, place(s.list, b, i));
    return row < s.k.shape[2] ? row : -1;
}

CBQ_FN float sum_of_warp(float v) {
    for (int lanes = 16; lanes > 0; lanes /= 2) v += cu_shuffle_xor(v, lanes);
    return v;
}
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
            float logit = sum_of_warp(sums[h]) * s.scale;
            if (threadIdx.x % 32 == 0) t.weights[h][key] = row >= 0 ? logit : -INFINITY;
        }
    }
}

// Logits to weights, and how much of the sums so far is kept, now that the largest logit may be another.
CBQ_FN void weigh(attention_tile &t) {
    int lane = threadIdx.x % 32;
    for (int h = (int)threadIdx.x / 32; h < HEADS; h += WARPS) {
        float logit = t.weights[h][lane], before = t.largest[h], now = f_max(largest_of_warp(logit), before);
        float weight = logit == -INFINITY ? 0 : f_exp(logit - now), sum = sum_of_warp(weight);
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
    int64_t piece = blockIdx.x % s.pieces, chunk = blockIdx.x / s.pieces % s.chunks, group = blockIdx.x / s.pieces / s.chunks;
    int64_t kv = group % s.k.shape[1], b = group / s.k.shape[1], share = s.q.shape[1] / s.k.shape[1], width = columns(s);
    int64_t first_head = kv * share + chunk * HEADS, heads = share - chunk * HEADS < HEADS ? share - chunk * HEADS : HEADS;
    for (int64_t i = threadIdx.x; i < HEADS * width; i += OPERATOR_THREADS) {
        int64_t h = i / width, d = i - h * width, of_q = s.q.shape[2];
        float x = 0;
        if (h < heads) x = d < of_q ? get(s.q, place(s.q, b, first_head + h, d)) : get(s.q2, place(s.q2, b, first_head + h, d - of_q));
        queries[i] = x;
    }
    if (threadIdx.x < HEADS) {
        t.largest[threadIdx.x] = -INFINITY;
        t.total[threadIdx.x] = 0;
    }
    float sums[HEADS][COLUMNS];
#pragma unroll
    for (int i = 0; i < HEADS * COLUMNS; i++) sums[i / COLUMNS][i % COLUMNS] = 0;
    int64_t end = entries(s, b), tiles = (end + KEYS - 1) / KEYS;
    for (int64_t tile = tiles * piece / s.pieces; tile < tiles * (piece + 1) / s.pieces; tile++) {
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
    int64_t part_size = 2 + s.v.shape[3];
    for (int h = 0; h < HEADS; h++) {
        if (h >= heads) break;
        float *part = s.parts + ((b * s.q.shape[1] + first_head + h) * s.pieces + piece) * part_size;
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
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_attend_128(attention_args s) { attend<1>(s); }
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_attend_256(attention_args s) { attend<2>(s); }
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_attend_512(attention_args s) { attend<4>(s); }
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS, 2) cbq_attend_1024(attention_args s) { attend<8>(s); }

// A CTA to a head: the pieces relative to the largest logit of all, the sink's among them.
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_attention_merge(attention_args s) {
    int64_t h = blockIdx.x % s.q.shape[1], b = blockIdx.x / s.q.shape[1], part_size = 2 + s.v.shape[3];
    const float *parts = s.parts + (int64_t)blockIdx.x * s.pieces * part_size;
    float sink = s.sink.data ? get(s.sink, place(s.sink, h)) : -INFINITY, largest = sink;
    for (int i = 0; i < s.pieces; i++) largest = f_max(parts[i * part_size], largest);
    float total = sink == -INFINITY ? 0 : f_exp(sink - largest);
    for (int i = 0; i < s.pieces; i++)
        if (parts[i * part_size] != -INFINITY || parts[i * part_size + 1] != 0) total = fmaf(parts[i * part_size + 1], f_exp(parts[i * part_size] - largest), total);
    for (int64_t d = threadIdx.x; d < s.v.shape[3]; d += OPERATOR_THREADS) {
        float sum = 0;
        for (int i = 0; i < s.pieces; i++) {
            const float *part = parts + i * part_size;
            if (part[1] != 0) sum = fmaf(part[2 + d], f_exp(part[0] - largest), sum);
        }
        put(s.y, place(s.y, b, h, d), total == 0 ? 0 : sum / total);
    }
}

// ---- the host's part ----

static attention_args lay_out(const cbq_cuda_operands *o) {
    const cbq_cuda_array *a = o->arrays;
    attention_args s = {a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], (float *)o->workspace, (float)o->numbers[0]};
    int64_t share = s.q.shape[1] / s.k.shape[1], n = s.list.data ? s.list.shape[1] : s.k.shape[2];
    s.chunks = (int)((share + HEADS - 1) / HEADS);
    // About four CTAs a multiprocessor, each with four tiles or more.
    int64_t groups = s.q.shape[0] * s.k.shape[1] * s.chunks, wanted = (4 * (int64_t)o->processors + groups - 1) / (groups ? groups : 1);
    int64_t most = (n + 4 * KEYS - 1) / (4 * KEYS);
    if (wanted > most) wanted = most;
    s.pieces = (int)(wanted > MOST_PIECES ? MOST_PIECES : wanted < 1 ? 1 : wanted);
    return s;
}
static uint64_t bytes_of_parts(const attention_args *s) {
    return (uint64_t)(s->q.shape[0] * s->q.shape[1] * s->pieces * (2 + s->v.shape[3])) * sizeof(float);
}
static uint64_t attention_workspace(const cbq_cuda_operands *o) {
    attention_args s = lay_out(o);
    return bytes_of_parts(&s);
}

static cudaError_t run_attention(const attention_args &s, cudaStream_t stream) {
    int64_t columns = s.v.shape[3], heads = s.q.shape[0] * s.q.shape[1];
    if (heads == 0 || columns == 0) return cudaSuccess;
    if (columns > MOST_COLUMNS) return cudaErrorInvalidValue;
    void (*kernel)(attention_args) = columns <= 128 ? cbq_attend_128 : columns <= 256 ? cbq_attend_256 : columns <= 512 ? cbq_attend_512 : cbq_attend_1024;
    size_t shared = (size_t)(HEADS * (s.q.shape[2] + (s.q2.data ? s.q2.shape[2] : 0))) * sizeof(float);
    int64_t ctas = s.q.shape[0] * s.k.shape[1] * s.chunks * s.pieces;
    cudaError_t error = cu_launch(kernel, ctas_for(ctas, 1), OPERATOR_THREADS, shared, stream, s);
    return error != cudaSuccess ? error : cu_launch(cbq_attention_merge, ctas_for(heads, 1), OPERATOR_THREADS, 0, stream, s);
}
// q [B, H, D], k [B, Hkv, n, D], v [B, Hkv, n, Dv], q2 [B, H, R], k2 [B, Hkv, n, R] (or neither), sink [H], lengths [B], list [B, n_sel]
// (each or not), y [B, H, Dv]; numbers: scale. An index that is no row of the cache names none.
static cudaError_t attention(const cbq_cuda_operands *o, cudaStream_t stream) { return run_attention(lay_out(o), stream); }

// ---- the query of multi-head latent attention ----

struct absorb_args {
    cbq_cuda_array q, w, y;
};
// y[h] = q[h] . w[h], a column to a thread.
extern "C" __global__ void __launch_bounds__(OPERATOR_THREADS) cbq_mla_absorb(absorb_args s) {
    int64_t i = thread_of_grid(), h = i / s.y.shape[1], r = i - h * s.y.shape[1];
    if (h >= s.y.shape[0]) return;
    float sum = 0;
    for (int64_t d = 0; d < s.q.shape[1]; d++) sum = fmaf(get(s.q, place(s.q, h, d)), get(s.w, place(s.w, h, d, r)), sum);
    put(s.y, place(s.y, h, r), sum);
}
// q_nope [H, d], w_uk [H, d, R], y float32 [H, R].
static cudaError_t mla_absorb(const cbq_cuda_operands *o, cudaStream_t stream) {
    absorb_args s = {o->arrays[0], o->arrays[1], o->arrays[2]};
    int64_t elements = s.y.shape[0] * s.y.shape[1];
    return elements == 0 ? cudaSuccess : cu_launch(cbq_mla_absorb, ctas_for(elements), OPERATOR_THREADS, 0, stream, s);
}

extern "C" const cbq_cuda_operator cbq_cuda_attention[] = {
    {"attention", 9, 1, attention_workspace, attention},
    {"mla_absorb", 3, 0, NULL, mla_absorb},
    {NULL, 0, 0, NULL, NULL},
};
