// What the two ways of attention have in common: arguments, the rows of the cache that count, partial results.
#pragma once
#include "array.cuh"
#include "lanes.cuh"

struct attention_args {
    cbq_cuda_array q, k, v;             // [B, H, D], [B, Hkv, n, D], [B, Hkv, n, Dv]
    cbq_cuda_array q2, k2;              // [B, H, R], [B, Hkv, n, R]: more columns of both, or nothing
    cbq_cuda_array sink, lengths, list; // [H], [B], [B, n_sel], or nothing
    cbq_cuda_array y;                   // [B, H, Dv]
    float *parts;                       // [B, H, pieces, 2 + Dv]: largest logit, sum of weights, sums of values
    float scale;
    int pieces, chunks; // of the cache; of the heads that share a KV head
    int stages, is_shared;  // with tensor cores: tiles in shared memory, whether v is in k
};

CBQ_FN int64_t columns(const attention_args &s) { return s.q.shape[2] + (s.q2.data ? s.q2.shape[2] : 0); }

// Entries of the cache, or of the list, that this sequence has, and the row of the cache of one: -1 where there is none.
CBQ_FN int64_t entries(const attention_args &s, int64_t b) {
    if (s.list.data) return s.list.shape[1];
    return length_of(s.lengths, b, s.k.shape[2]);
}
CBQ_FN int64_t row_of_entry(const attention_args &s, int64_t b, int64_t i, int64_t end) {
    if (i >= end) return -1;
    if (!s.list.data) return i;
    int64_t row = integer(s.list, place(s.list, b, i));
    return row < s.k.shape[2] ? row : -1;
}

// A CTA's place: a piece of the cache, some of the heads of one KV head, a sequence.
struct attention_place {
    int64_t piece, kv, b, first_head, heads;
};
template <int HEADS> CBQ_FN attention_place find_place(const attention_args &s) {
    int64_t chunk = blockIdx.x / s.pieces % s.chunks, group = blockIdx.x / s.pieces / s.chunks, share = s.q.shape[1] / s.k.shape[1];
    int64_t kv = group % s.k.shape[1], left = share - chunk * HEADS;
    return {blockIdx.x % s.pieces, kv, group / s.k.shape[1], kv * share + chunk * HEADS, left < HEADS ? left : HEADS};
}
// Column d of a head's query, of both parts of it; zero past the heads that there are.
CBQ_FN float query(const attention_args &s, const attention_place &at, int64_t h, int64_t d) {
    int64_t of_q = s.q.shape[2];
    if (h >= at.heads) return 0;
    return d < of_q ? get(s.q, place(s.q, at.b, at.first_head + h, d)) : get(s.q2, place(s.q2, at.b, at.first_head + h, d - of_q));
}
CBQ_FN float *part_of(const attention_args &s, const attention_place &at, int64_t h) {
    return s.parts + ((at.b * s.q.shape[1] + at.first_head + h) * s.pieces + at.piece) * (2 + s.v.shape[3]);
}
