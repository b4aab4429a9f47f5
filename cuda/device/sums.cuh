// The sums of a tile, as tensor cores leave them. Warp w has rows 16 w .. 16 w + 15; with g = lane / 4 and q = lane % 4,
// a lane has for each eight tokens {row g, tokens 2q and 2q + 1; row g + 8, the same tokens}.
#pragma once
#include "store.cuh"
#include "work.cuh"

template <int TOKENS> struct sums {
    float of[TOKENS / 8][4];
};

// Those of tokens `from` .. `from` + N - 1.
template <int N> CBQ_FN void write_tokens(const product_args &a, const tile_of_work &t, uint32_t from, const float of[N / 8][4]) {
    uint32_t lane = threadIdx.x % 32, row = t.row + threadIdx.x / 32 * 16 + lane / 4;
    uint32_t size = float_size(a.y_dtype);
#pragma unroll
    for (uint32_t j = 0; j < N / 8; j++) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t token = from + 8 * j + 2 * (lane % 4) + i % 2, n = row + i / 2 * 8;
            if (token >= t.tokens || n >= a.n) continue;
            store1(a.y + (row_of(a, t.token + token) * a.y_stride + n) * size, of[j][i], a.y_dtype);
        }
    }
}

template <int TOKENS> CBQ_FN void write_tile(const product_args &a, const tile_of_work &t, const sums<TOKENS> &s) {
    if constexpr (TOKENS <= 64) write_tokens<TOKENS>(a, t, 0, s.of);
    else { // a piece at a time, chosen by comparing: the code to store all of them would be longer than the rest of a kernel
#pragma unroll 1
        for (uint32_t from = 0; from < t.tokens; from += 16) {
            float of[2][4] = {};
#pragma unroll
            for (uint32_t j = 0; j < TOKENS / 8; j++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++)
                    if (j / 2 == from / 16) of[j % 2][i] = s.of[j][i];
            write_tokens<16>(a, t, from, of);
        }
    }
}

template <int R = ROWS, int TOKENS> CBQ_FN void write_part(float *part, const sums<TOKENS> &s) {
#pragma unroll
    for (uint32_t j = 0; j < TOKENS / 8; j++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) part[(4 * j + i) * 2 * R] = s.of[j][i];
}

template <int R = ROWS, int TOKENS> CBQ_FN void add_part(const float *part, sums<TOKENS> &s) {
#pragma unroll
    for (uint32_t j = 0; j < TOKENS / 8; j++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) s.of[j][i] += part[(4 * j + i) * 2 * R];
}

template <int TOKENS> CBQ_FN void clear_sums(sums<TOKENS> &s) {
#pragma unroll
    for (uint32_t j = 0; j < TOKENS / 8; j++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) s.of[j][i] = 0;
}
