// Eight elements of two rows of a lane, g and g + 8 of a warp's sixteen, times the same elements of rows of x.
//
// The order of k inside a product is free as long as both sides have it. So a lane takes two times four neighbouring elements as
// the columns that a fragment gives it: codes need no shuffle, and x is read eight or sixteen bytes at a time. `x` is where the
// lane's first four are in the first row; GAP bytes further are the other four.
#pragma once
#include "stage.cuh"
#include "sums.cuh"

// bf16 on tensor cores.
template <int N> struct multiply_bf16 {
    enum { TOKENS = N, dtype = CBQ_BF16, element = 2 };
    typedef sums<N> state;
    template <int GAP>
    CBQ_FN void add(const uint32_t l[4], const uint32_t h[4], const uint8_t *x, uint32_t x_bytes, uint32_t tokens, state &s) {
        uint32_t a[2][4] = {{l[0], h[0], l[1], h[1]}, {l[2], h[2], l[3], h[3]}};
        x += threadIdx.x % 32 / 4 * x_bytes;
#pragma unroll
        for (uint32_t j = 0; j < N / 8; j++) {
            if (j && 8 * j >= tokens) break;
            const uint8_t *of_j = x + 8 * j * x_bytes;
            uint4 all = GAP == 8 ? *(const uint4 *)of_j : make_uint4(0, 0, 0, 0);
            uint2 first = GAP == 8 ? make_uint2(all.x, all.y) : *(const uint2 *)of_j;
            uint2 second = GAP == 8 ? make_uint2(all.z, all.w) : *(const uint2 *)(of_j + GAP);
            uint32_t b[2][2] = {{first.x, first.y}, {second.x, second.y}};
            cu_mma_bf16(s.of[j], a[0], b[0]);
            cu_mma_bf16(s.of[j], a[1], b[1]);
        }
    }
    CBQ_FN void clear(state &s) { clear_sums(s); }
    CBQ_FN void finish(const state &s, sums<N> &all) { all = s; }
};

// float32 without tensor cores, eight tokens: a lane sums over its own words, and in the end the four lanes of two rows
// add theirs up.
struct multiply_f32 {
    enum { TOKENS = 8, dtype = CBQ_F32, element = 4 };
    struct state {
        float of[8][2]; // tokens, rows
    };
    template <int GAP>
    CBQ_FN void add(const uint32_t l[4], const uint32_t h[4], const uint8_t *x, uint32_t x_bytes, uint32_t tokens, state &s) {
        float w[2][8];
#pragma unroll
        for (int i = 0; i < 16; i++) {
            uint32_t pair = (i < 8 ? l : h)[i % 8 / 2];
            w[i / 8][i % 8] = cbq_as_f32(i % 2 ? pair & 0xffff0000u : pair << 16);
        }
#pragma unroll
        for (uint32_t token = 0; token < 8; token++) {
            if (token >= tokens) break;
            float4 words[2] = {*(const float4 *)(x + token * x_bytes), *(const float4 *)(x + token * x_bytes + GAP)};
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
