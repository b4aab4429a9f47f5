// Many heads to a KV head, f16 or bf16: tensor cores. With 64 heads on one KV head a byte of the cache is worth 128 operations.
//
// A CTA has up to 64 heads and a piece of the cache, 16 rows at a time, which are in shared memory once for keys and values where
// these are the same. Eight warps: for logits each has 16 heads and 8 keys; for the sums of values 16 heads and half of the columns.
// Weights are rounded to the cache's type, sums are float32. Every row of the cache that is read must be finite.
#pragma once
#include "attention.cuh"

enum { MANY_HEADS = 64, MANY_KEYS = 16, MANY_THREADS = 256, HALVES_OF_16_BYTES = 8, WEIGHT_PITCH = MANY_KEYS + 8 };

template <int DTYPE> CBQ_FN void mma(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    if (DTYPE == CBQ_F16) cu_mma_f16(c, a, b);
    else cu_mma_bf16(c, a, b);
}

// Shared memory. Rows are eight halves longer than they need be: eight of them are then in all banks.
struct many_layout {
    uint16_t *queries, *keys, *values, *weights; // [64, pitch], [stages, 16, pitch], [stages, 16, value_pitch], [64, WEIGHT_PITCH]
    float *logits, *largest, *total, *kept;      // [64, 16], [64] each
    int64_t pitch, value_pitch;
};
static __host__ __device__ inline int64_t many_pitch(const attention_args &s) { return s.q.shape[2] + (s.q2.data ? s.q2.shape[2] : 0) + 8; }
static __host__ __device__ inline int64_t many_bytes(const attention_args &s, int stages, bool is_shared) {
    int64_t pitch = many_pitch(s), halves = (MANY_HEADS + stages * MANY_KEYS) * pitch + MANY_HEADS * WEIGHT_PITCH;
    if (!is_shared) halves += stages * MANY_KEYS * (s.v.shape[3] + 8);
    return 2 * halves + 4 * (MANY_HEADS * MANY_KEYS + 3 * MANY_HEADS);
}
CBQ_FN many_layout lay_out_many(uint8_t *shared, const attention_args &s) {
    many_layout l;
    l.pitch = many_pitch(s);
    l.value_pitch = s.is_shared ? l.pitch : s.v.shape[3] + 8;
    l.queries = (uint16_t *)shared;
    l.keys = l.queries + MANY_HEADS * l.pitch;
    l.values = s.is_shared ? l.keys : l.keys + s.stages * MANY_KEYS * l.pitch;
    l.weights = s.is_shared ? l.keys + s.stages * MANY_KEYS * l.pitch : l.values + s.stages * MANY_KEYS * l.value_pitch;
    l.logits = (float *)(l.weights + MANY_HEADS * WEIGHT_PITCH);
    l.largest = l.logits + MANY_HEADS * MANY_KEYS;
    l.total = l.largest + MANY_HEADS;
    l.kept = l.total + MANY_HEADS;
    return l;
}

// Some columns of a tile's rows of one array; rows that are none are zeros.
CBQ_FN void stage_rows(uint16_t *to, int64_t pitch, const cbq_cuda_array &a, const attention_args &s, const attention_place &at, int64_t tile,
                       int64_t end) {
    uint32_t chunks = (uint32_t)(a.shape[3] / HALVES_OF_16_BYTES);
    for (uint32_t i = threadIdx.x; i < MANY_KEYS * chunks; i += MANY_THREADS) {
        uint32_t key = i / chunks, column = i % chunks * HALVES_OF_16_BYTES;
        int64_t row = row_of_entry(s, at.b, tile * MANY_KEYS + key, end);
        uint16_t *place_of = to + key * pitch + column;
        if (row >= 0) cu_copy16_async(place_of, (const uint16_t *)a.data + place(a, at.b, at.kv, row) + column);
        else *(uint4 *)place_of = make_uint4(0, 0, 0, 0);
    }
}
CBQ_FN void stage_tile(const many_layout &l, const attention_args &s, const attention_place &at, int64_t tile, int64_t stage, int64_t end) {
    uint16_t *keys = l.keys + stage * MANY_KEYS * l.pitch;
    stage_rows(keys, l.pitch, s.k, s, at, tile, end);
    if (s.k2.data) stage_rows(keys + s.k.shape[3], l.pitch, s.k2, s, at, tile, end);
    if (!s.is_shared) stage_rows(l.values + stage * MANY_KEYS * l.value_pitch, l.value_pitch, s.v, s, at, tile, end);
}

// Logits of a tile, without the scale.
template <int DTYPE> CBQ_FN void many_logits(const many_layout &l, const uint16_t *keys) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = warp % 4 * 16, key = warp / 4 * 8;
    const uint16_t *q = l.queries + (head + lane % 16) * l.pitch + lane / 16 * 8, *k = keys + (key + lane % 8) * l.pitch + lane / 8 * 8;
    float sums[4] = {0, 0, 0, 0};
    for (int64_t d = 0; d < l.pitch - 8; d += 32) {
        uint32_t first[4], second[4], b[4];
        cu_load_matrices(first, q + d);
        cu_load_matrices(second, q + d + 16);
        cu_load_matrices(b, k + d);
        mma<DTYPE>(sums, first, b);
        mma<DTYPE>(sums, second, b + 2);
    }
    float *to = l.logits + (head + lane / 4) * MANY_KEYS + key + lane % 4 * 2;
    to[0] = sums[0];
    to[1] = sums[1];
    to[8 * MANY_KEYS] = sums[2];
    to[8 * MANY_KEYS + 1] = sums[3];
}

// A head's four lanes have four keys each.
template <int DTYPE> CBQ_FN void many_weights(const many_layout &l, const attention_args &s, const attention_place &at, int64_t tile, int64_t end) {
    uint32_t head = threadIdx.x / 4, key = threadIdx.x % 4 * 4;
    float x[4], before = l.largest[head], now = before, sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        bool counts = row_of_entry(s, at.b, tile * MANY_KEYS + key + i, end) >= 0;
        x[i] = counts ? l.logits[head * MANY_KEYS + key + i] * s.scale : -INFINITY;
        now = f_max(x[i], now);
    }
    now = f_max(cu_shuffle_xor(now, 1), now);
    now = f_max(cu_shuffle_xor(now, 2), now);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        float weight = x[i] == -INFINITY ? 0 : f_exp(x[i] - now);
        sum += weight;
        l.weights[head * WEIGHT_PITCH + key + i] = (uint16_t)to_half<DTYPE>(weight);
    }
    sum += cu_shuffle_xor(sum, 1);
    sum += cu_shuffle_xor(sum, 2);
    if (threadIdx.x % 4 != 0) return;
    float kept = before == now ? 1 : f_exp(before - now);
    l.kept[head] = kept;
    l.total[head] = fmaf(l.total[head], kept, sum);
    l.largest[head] = now;
}

template <int DTYPE, int TILES> CBQ_FN void many_values(const many_layout &l, const attention_args &s, const uint16_t *values, float sums[TILES][4]) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = warp % 4 * 16;
    int64_t half = s.v.shape[3] / 2;
    float low = l.kept[head + lane / 4], high = l.kept[head + lane / 4 + 8];
    uint32_t a[4], b[4];
    cu_load_matrices(a, l.weights + (head + lane % 16) * WEIGHT_PITCH + lane / 16 * 8);
    const uint16_t *v = values + lane % 16 * l.value_pitch + warp / 4 * half + lane / 16 * 8;
#pragma unroll
    for (int j = 0; j < TILES; j += 2) {
        if (8 * j >= half) break;
        cu_load_matrices_transposed(b, v + 8 * j);
#pragma unroll
        for (int i = 0; i < 8; i++) sums[j + i / 4][i % 4] *= i % 4 < 2 ? low : high;
        mma<DTYPE>(sums[j], a, b);
        mma<DTYPE>(sums[j + 1], a, b + 2);
    }
}

template <int DTYPE, int TILES> CBQ_FN void attend_many(const attention_args &s) {
    CU_DYNAMIC_SHARED(shared);
    const many_layout l = lay_out_many(shared, s);
    const attention_place at = find_place<MANY_HEADS>(s);
    int64_t width = l.pitch - 8;
    for (uint32_t i = threadIdx.x; i < MANY_HEADS * width; i += MANY_THREADS) {
        uint32_t h = i / (uint32_t)width, d = i % (uint32_t)width;
        l.queries[h * l.pitch + d] = (uint16_t)to_half<DTYPE>(query(s, at, h, d));
    }
    if (threadIdx.x < MANY_HEADS) {
        l.largest[threadIdx.x] = -INFINITY;
        l.total[threadIdx.x] = 0;
    }
    float sums[TILES][4];
#pragma unroll
    for (int i = 0; i < TILES * 4; i++) sums[i / 4][i % 4] = 0;
    int64_t end = entries(s, at.b), tiles = (end + MANY_KEYS - 1) / MANY_KEYS;
    int64_t first = tiles * at.piece / s.pieces, last = tiles * (at.piece + 1) / s.pieces, ahead = s.stages - 1;
    for (int64_t turn = first; turn < last + ahead; turn++) {
        if (turn < last) stage_tile(l, s, at, turn, turn % s.stages, end);
        cu_commit();
        if (turn < first + ahead) continue;
        if (ahead) cu_wait<1>();
        else cu_wait<0>();
        int64_t tile = turn - ahead, stage = tile % s.stages;
        cu_barrier(); // the tile is there for all, and so are the queries
        many_logits<DTYPE>(l, l.keys + stage * MANY_KEYS * l.pitch);
        cu_barrier();
        many_weights<DTYPE>(l, s, at, tile, end);
        cu_barrier();
        many_values<DTYPE, TILES>(l, s, l.values + stage * MANY_KEYS * l.value_pitch, sums);
        cu_barrier(); // all are done with it: the next copies go there
    }
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x < at.heads) {
        float *part = part_of(s, at, threadIdx.x);
        part[0] = l.largest[threadIdx.x];
        part[1] = l.total[threadIdx.x];
    }
    int64_t half = s.v.shape[3] / 2, column = warp / 4 * half + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        if (8 * j >= half) break;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int64_t h = warp % 4 * 16 + lane / 4 + i / 2 * 8;
            if (h < at.heads) part_of(s, at, h)[2 + column + 8 * j + i % 2] = sums[j][i];
        }
    }
}

// ---- the host's part ----

static bool has_rows_of_16_bytes(const cbq_cuda_array &a) {
    bool aligned = (uintptr_t)a.data % 16 == 0 && a.shape[3] % 8 == 0 && a.strides[3] == 1;
    return aligned && a.strides[0] % 8 == 0 && a.strides[1] % 8 == 0 && a.strides[2] % 8 == 0;
}
// Whether tensor cores do it, and with how many tiles in shared memory.
static bool plan_many(attention_args &s, int64_t shared_memory) {
    int64_t width = many_pitch(s) - 8, columns = s.v.shape[3];
    // Queries of float32 would lose digits; the absorbed ones of latent attention (those with a second part) were halves before.
    const cbq_cuda_array &q = s.q2.data ? s.q2 : s.q;
    bool is_half = (s.k.type == CBQ_F16 || s.k.type == CBQ_BF16) && s.v.type == s.k.type && q.type == s.k.type;
    if (s.k2.data && s.k2.type != s.k.type) return false;
    if (!is_half || s.q.shape[1] / s.k.shape[1] < 16 || width % 32 || columns % 32 || columns > 512 || s.k.shape[3] != s.q.shape[2]) return false;
    if (!has_rows_of_16_bytes(s.k) || !has_rows_of_16_bytes(s.v) || (s.k2.data && !has_rows_of_16_bytes(s.k2))) return false;
    bool same = s.v.data == s.k.data && s.v.shape[3] <= s.k.shape[3];
    for (int i = 0; i < 3; i++) same = same && s.v.strides[i] == s.k.strides[i];
    for (s.stages = 2; s.stages > 0; s.stages--) {
        s.is_shared = same;
        if (many_bytes(s, s.stages, same) <= shared_memory) return true;
    }
    return false;
}
