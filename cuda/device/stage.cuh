// A step of x on its way to shared memory, as bf16 or float32.
#pragma once
#include "store.cuh"
#include "work.cuh"

CBQ_FN const uint8_t *row_of_x(const product_args &a, uint32_t row) { return a.x + row * a.x_stride * float_size(a.x_dtype); }

// Rows of x, the first `tokens` of TOKENS, as bf16 or float32 at a distance of `row_bytes`: `elements` from element `from` on, of a
// step of ELEMENTS. What has the type and lies at multiples of 16 is copied; all else is converted, a pair at a time. L, how W lies,
// says where 16 bytes go, and how many elements it multiplies: zeros beyond k.
template <class L, int ELEMENTS, int TOKENS, int DTYPE>
CBQ_FN void stage_x(uint8_t *staged, uint32_t row_bytes, const product_args &a, const uint32_t *rows, uint32_t tokens, uint32_t from,
                                               uint32_t elements) {
    const uint32_t size = DTYPE == CBQ_F32 ? 4 : 2, each = 16 / size, chunks = ELEMENTS / each, padded = L::padded(elements);
    if (a.x_dtype == DTYPE && (uintptr_t)a.x % 16 == 0 && a.x_stride % each == 0 && a.k % each == 0) {
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < TOKENS * chunks; i += THREADS) {
            uint32_t token = i / chunks, e = i % chunks * each;
            if (token >= tokens) break;
            uint8_t *to = staged + token * row_bytes + 16 * L::x_chunk(e / each, size);
            if (e < elements) cu_copy16_async(to, row_of_x(a, rows[token]) + (from + e) * size);
            else if (e < padded) *(uint4 *)to = make_uint4(0, 0, 0, 0);
        }
        return;
    }
    uint32_t x_size = float_size(a.x_dtype);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < tokens * (ELEMENTS / 2); i += THREADS) {
        uint32_t token = i / (ELEMENTS / 2), e = i % (ELEMENTS / 2) * 2;
        if (e >= padded) continue;
        const uint8_t *x = row_of_x(a, rows[token]) + (from + e) * x_size;
        float first = e < elements ? load1(x, a.x_dtype) : 0, second = e + 1 < elements ? load1(x + x_size, a.x_dtype) : 0;
        uint8_t *to = staged + token * row_bytes + 16 * L::x_chunk(e / each, size) + e % each * size;
        if (DTYPE == CBQ_F32) *(float2 *)to = make_float2(first, second);
        else *(uint32_t *)to = cu_pack_bf16(first, second);
    }
}
