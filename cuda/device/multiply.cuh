// A run of 32 elements of a warp's sixteen rows, decoded in registers, times rows of x.
//
// The order of k inside a product is free as long as both sides have it. So a lane takes words of four neighbouring codes,
// q and q + 4 of a run (q = lane % 4), as the columns that a fragment gives it: codes need no shuffle, and x is read eight
// bytes at a time.
#pragma once
#include "plain.cuh"
#include "sums.cuh"

// bf16 on tensor cores.
template <class T, int N> struct multiply_bf16 {
    enum { TOKENS = N, dtype = CBQ_BF16, element = 2, pad = 32 }; // bytes of padding: four rows of x are then in all banks
    typedef sums<N> state;
    CBQ_FN void run(const uint8_t *low, const uint8_t *high, uint32_t r, const uint8_t *x, uint32_t x_bytes, uint32_t tokens, state &s) {
        uint32_t l[4], h[4], lane = threadIdx.x % 32;
        weights8<T>(low, r, l);
        weights8<T>(high, r, h);
        uint32_t a[2][4] = {{l[0], h[0], l[1], h[1]}, {l[2], h[2], l[3], h[3]}};
        x += lane / 4 * x_bytes + r * 64 + lane % 4 * 8;
#pragma unroll
        for (uint32_t j = 0; j < N / 8; j++) {
            if (8 * j >= tokens) break;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint2 pairs = *(const uint2 *)(x + 8 * j * x_bytes + 32 * half);
                uint32_t b[2] = {pairs.x, pairs.y};
                cu_mma_bf16(s.of[j], a[half], b);
            }
        }
    }
    CBQ_FN void clear(state &s) { clear_sums(s); }
    CBQ_FN void finish(const state &s, sums<N> &all) { all = s; }
};

// float32 without tensor cores, eight tokens: a lane sums over its own words, and in the end the four lanes of two rows
// add theirs up.
template <class T> struct multiply_f32 {
    enum { TOKENS = 8, dtype = CBQ_F32, element = 4, pad = 16 };
    struct state {
        float of[8][2]; // tokens, rows
    };
    CBQ_FN void run(const uint8_t *low, const uint8_t *high, uint32_t r, const uint8_t *x, uint32_t x_bytes, uint32_t tokens, state &s) {
        uint32_t pairs[2][4];
        weights8<T>(low, r, pairs[0]);
        weights8<T>(high, r, pairs[1]);
        float w[2][8];
#pragma unroll
        for (int i = 0; i < 16; i++) w[i / 8][i % 8] = cbq_as_f32(i % 2 ? pairs[i / 8][i % 8 / 2] & 0xffff0000u : pairs[i / 8][i % 8 / 2] << 16);
        x += r * 128 + threadIdx.x % 4 * 16;
#pragma unroll
        for (uint32_t token = 0; token < 8; token++) {
            if (token >= tokens) break;
            float4 words[2] = {*(const float4 *)(x + token * x_bytes), *(const float4 *)(x + token * x_bytes + 64)};
#pragma unroll
            for (int row = 0; row < 2; row++) {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const float *v = w[row] + 4 * i;
                    float sum = fmaf(v[1], words[i].y, fmaf(v[0], words[i].x, s.of[token][row]));
                    s.of[token][row] = fmaf(v[3], words[i].w, fmaf(v[2], words[i].z, sum));
                }
            }
        }
    }
    CBQ_FN void clear(state &s) {
#pragma unroll
        for (int i = 0; i < 16; i++) s.of[i / 2][i % 2] = 0;
    }
    CBQ_FN void finish(const state &s, sums<8> &all) {
        uint32_t q = threadIdx.x % 4;
#pragma unroll
        for (uint32_t i = 0; i < 16; i++) {
            float v = s.of[i / 2][i % 2];
            v += cu_shuffle_xor(v, 1);
            v += cu_shuffle_xor(v, 2);
            if (i / 4 == q) all.of[0][i % 2 * 2 + i / 2 % 2] = v;
        }
    }
};
