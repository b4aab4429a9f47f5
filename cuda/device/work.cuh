// How a product is cut. A tile is ROWS rows of W times up to TOKENS rows of x, along all of k; a step is a piece of k.
// The steps of all tiles, tile after tile, are dealt out to the CTAs in equal runs ("stream-K": Osama et al. 2023,
// arXiv:2301.03598), so that every multiprocessor has the same to do however few tiles there are. A CTA that has a tile
// from its first to its last step writes it; else its sums are a part, and a second kernel adds the parts of each tile
// in the order of k. No atomics: the same cut gives the same bits.
#pragma once
#include "base.h"

#include <instructions.cuh>

enum { ROWS = 64, THREADS = 128 };

struct product_args {
    const uint8_t *x, *w;
    uint8_t *y;
    float *parts;         // two of a tile's size for each CTA: see part_of
    const int32_t *order; // with experts: rows of y sorted by expert; NULL without
    const int32_t *first; // [experts + 1]: where an expert's rows begin in `order`
    const int32_t *tiles; // [experts + 1]: how many tiles of tokens the experts before it have
    uint64_t x_stride, y_stride, expert_bytes;
    uint32_t m, n, k, experts, picks, steps;
    int x_dtype, y_dtype;
};

struct tile_of_work {
    uint32_t expert, row, token, tokens; // the first row of W, and the rows of x (places in `order`, with experts)
};

// R rows of W to a tile, 16 to a warp: their sums are those of 2 R threads.
template <int R = ROWS> static __host__ __device__ __forceinline__ uint32_t row_tiles(const product_args &a) { return (a.n + R - 1) / R; }

template <int TOKENS, int R = ROWS> CBQ_FN uint64_t all_steps(const product_args &a) {
    uint32_t token_tiles = a.order ? (uint32_t)a.tiles[a.experts] : (a.m + TOKENS - 1) / TOKENS;
    return (uint64_t)token_tiles * row_tiles<R>(a) * a.steps;
}
CBQ_FN uint64_t begin_of(uint64_t steps, uint32_t cta, uint32_t ctas) { return steps * cta / ctas; }

// The last of n that begins at `place` or before.
CBQ_FN uint32_t last_from(const int32_t *begins, uint32_t n, uint32_t place) {
    uint32_t low = 0, high = n;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if ((uint32_t)begins[middle] <= place) low = middle;
        else high = middle;
    }
    return low;
}

template <int TOKENS, int R = ROWS> CBQ_FN tile_of_work find_tile(const product_args &a, uint64_t tile) {
    uint32_t of_tokens = (uint32_t)(tile / row_tiles<R>(a));
    tile_of_work t = {0, (uint32_t)(tile % row_tiles<R>(a)) * R, of_tokens * TOKENS, 0};
    uint32_t end = a.m;
    if (a.order) { // experts without tokens have no tile between theirs and the next
        t.expert = last_from(a.tiles, a.experts, of_tokens);
        t.token = a.first[t.expert] + (of_tokens - a.tiles[t.expert]) * TOKENS;
        end = a.first[t.expert + 1];
    }
    t.tokens = end - t.token < TOKENS ? end - t.token : TOKENS;
    return t;
}

// The row of y that a token of a tile is; its row of x is that divided by `picks`.
CBQ_FN uint32_t row_of(const product_args &a, uint32_t token) { return a.order ? (uint32_t)a.order[token] : token; }

// Where a CTA leaves the sums of a tile that is not all its own: one that it begins and does not end, or goes on with.
// Each thread's sums are apart by the number of threads, so that a warp's stores are together.
template <int TOKENS, int R = ROWS> CBQ_FN float *part_of(const product_args &a, uint32_t cta, bool begins) {
    return a.parts + (uint64_t)(2 * cta + begins) * R * TOKENS + threadIdx.x;
}

// What a CTA has to do, one piece after the other: steps `from` to `to` of a tile.
struct piece_of_work {
    uint64_t at, end; // of all steps
    uint32_t from, to;
    tile_of_work t;
};
template <int TOKENS, int R = ROWS> CBQ_FN piece_of_work first_piece(const product_args &a) {
    uint64_t steps = all_steps<TOKENS, R>(a);
    piece_of_work p = {begin_of(steps, blockIdx.x, gridDim.x), begin_of(steps, blockIdx.x + 1, gridDim.x), 0, 0, {}};
    return p;
}
// The next piece; false where there is none.
template <int TOKENS, int R = ROWS> CBQ_FN bool next_piece(const product_args &a, piece_of_work &p) {
    if (p.at == p.end) return false;
    p.from = (uint32_t)(p.at % a.steps);
    p.to = p.end - p.at < a.steps - p.from ? p.from + (uint32_t)(p.end - p.at) : a.steps;
    p.t = find_tile<TOKENS, R>(a, p.at / a.steps);
    p.at += p.to - p.from;
    return true;
}

// Sorts rows of y by expert, for tiles of so many tokens: route.cuh, whose kernels are in matmul.cu. The workspace has route_bytes.
cudaError_t route(product_args &p, const int32_t *ids, void *workspace, uint32_t tokens, cudaStream_t stream);
static inline uint64_t route_bytes(uint64_t experts, uint64_t rows) { return (3 * experts + 2 + rows) * sizeof(int32_t); }
