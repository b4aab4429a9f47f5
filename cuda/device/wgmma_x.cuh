// Rows of x for the kernels of many tokens, as bf16 in the order that they multiply in.
//
// Eight rows (a group) times 64 elements (a chunk) are 1024 bytes, as cu_matrix_of describes them; the groups of a chunk follow each other,
// so that what a tile of tokens needs for a chunk is one piece of memory. With experts the rows are in their order, and each expert's begin
// with a group.
#pragma once
#include "stage.cuh"

enum { CHUNK = 64, GROUP_BYTES = 8 * CHUNK * 2 };

// The group that row `place` is in. An expert's first one is first / 8 + expert: floor((f + c) / 8) + 1 >= floor(f / 8) + ceil(c / 8), so that
// they do not overlap, whatever the numbers of rows c.
CBQ_FN uint32_t group_of(const product_args &a, uint32_t expert, uint32_t place) {
    uint32_t first = a.order ? (uint32_t)a.first[expert] : 0;
    return first / 8 + expert + (place - first) / 8;
}
static inline uint64_t groups_of_x(uint64_t rows, uint64_t experts) { return rows / 8 + experts + 1; }
static inline uint64_t chunks_of(uint64_t k) { return (k + CHUNK - 1) / CHUNK; }

struct pack_args {
    product_args p; // x, x_stride, x_dtype: the rows as they come
    uint8_t *to;
    uint64_t groups;
};

// Sixteen elements of a row as floats, in 16 bytes at a time where they lie so.
CBQ_FN void load16(const uint8_t *x, int dtype, float v[16]) {
    if ((uintptr_t)x % 16 != 0) {
#pragma unroll
        for (int i = 0; i < 16; i++) v[i] = load1(x + i * float_size(dtype), dtype);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (dtype == CBQ_F32) {
            float4 four = ((const float4 *)x)[i];
            v[4 * i] = four.x, v[4 * i + 1] = four.y, v[4 * i + 2] = four.z, v[4 * i + 3] = four.w;
        } else if (i < 2) {
            uint4 eight = ((const uint4 *)x)[i];
            uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
            for (int j = 0; j < 8; j++) {
                uint32_t half = j % 2 ? pairs[j / 2] >> 16 : pairs[j / 2] & 0xffffu;
                v[8 * i + j] = dtype == CBQ_F16 ? cbq_f16_to_f32(half) : cbq_as_f32(half << 16);
            }
        }
    }
}

// One CTA to a row, sixteen elements to a thread at a time: they are the k of one product, in the order of multiply.cuh. Column p of
// it is element 4 q + i of the row, with q = p % 8 / 2 and i = p / 8 * 2 + p % 2.
CBQ_FN void pack_row(const pack_args &args) {
    const product_args &a = args.p;
    uint32_t place = blockIdx.x;
    if (a.order && place >= (uint32_t)a.first[a.experts]) return; // rows of no expert come last
    uint32_t expert = a.order ? last_from(a.first, a.experts, place) : 0, row = place - (a.order ? (uint32_t)a.first[expert] : 0);
    const uint8_t *x = row_of_x(a, row_of(a, place) / a.picks);
    uint8_t *to = args.to + (uint64_t)group_of(a, expert, place) * GROUP_BYTES + row % 8 * 128;
    for (uint32_t i = threadIdx.x; i < a.k / 16; i += THREADS) {
        float v[16];
        load16(x + (uint64_t)i * 16 * float_size(a.x_dtype), a.x_dtype, v);
        uint8_t *chunk = to + i / 4 * args.groups * GROUP_BYTES;
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t pairs[4];
#pragma unroll
            for (int q = 0; q < 4; q++) pairs[q] = cu_pack_bf16(v[4 * q + 2 * half], v[4 * q + 2 * half + 1]);
            *(uint4 *)(chunk + ((i % 4 * 2 + half) ^ row % 8) * 16) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        }
    }
}
