// A step's bytes on their way to shared memory: rows of blocks as they are, rows of x as bf16 or float32.
#pragma once
#include "store.cuh"
#include "traits.cuh"
#include "work.cuh"

// Geometry of a step. Rows of blocks begin anywhere, copies at multiples of 16: a row takes the 16-byte chunks that it
// touches (hence the margin around weights). An odd number of chunks from row to row: eight rows are then in all banks.
template <class T> struct step_of {
    enum {
        elements = T::elements > 128 ? T::elements : 128,
        runs = elements / 32,
        bytes = elements / T::elements * T::bytes,
        chunks = (bytes + 30) / 16,
        row_bytes = 16 * (chunks | 1),
    };
};

template <class T> static __device__ __forceinline__ const uint8_t *row_of_w(const product_args &a, const tile_of_work &t, uint32_t row) {
    uint32_t n = t.row + row < a.n ? t.row + row : a.n - 1; // past the last: its sums are never written
    return a.w + t.expert * a.expert_bytes + (uint64_t)n * (a.k / T::elements * T::bytes);
}

template <class T> static __device__ __forceinline__ void stage_w(uint8_t *staged, const product_args &a, const tile_of_work &t, uint32_t step) {
    typedef step_of<T> S;
    uint32_t left = (a.k - step * S::elements) / T::elements * T::bytes, bytes = left < S::bytes ? left : S::bytes;
    for (uint32_t i = threadIdx.x; i < ROWS * S::chunks; i += THREADS) {
        uint32_t row = i / S::chunks, chunk = i % S::chunks;
        const uint8_t *from = row_of_w<T>(a, t, row) + (uint64_t)step * S::bytes;
        uint32_t shift = (uint32_t)((uintptr_t)from % 16);
        if (16 * chunk < shift + bytes) cu_copy16_async(staged + row * S::row_bytes + 16 * chunk, from - shift + 16 * chunk);
    }
}
// Where the step's bytes of a row are in there.
template <class T> static __device__ __forceinline__ const uint8_t *staged_row(const uint8_t *staged, const product_args &a, const tile_of_work &t, uint32_t row, uint32_t step) {
    const uint8_t *from = row_of_w<T>(a, t, row) + (uint64_t)step * step_of<T>::bytes;
    return staged + row * step_of<T>::row_bytes + (uint32_t)((uintptr_t)from % 16);
}

static __device__ __forceinline__ const uint8_t *row_of_x(const product_args &a, const uint32_t *rows, uint32_t token) {
    return a.x + rows[token] * a.x_stride * float_size(a.x_dtype);
}

// Rows of x, `tokens` of them, as bf16 or float32 at a distance of `row_bytes`: `elements` from element `from` on, of a step
// of ELEMENTS. What has the type and lies at multiples of 16 is copied; all else is converted, a pair at a time.
template <int ELEMENTS, int DTYPE>
static __device__ __forceinline__ void stage_x(uint8_t *staged, uint32_t row_bytes, const product_args &a, const uint32_t *rows, uint32_t tokens, uint32_t from,
                                               uint32_t elements) {
    const uint32_t size = DTYPE == CBQ_F32 ? 4 : 2, each = 16 / size;
    if (a.x_dtype == DTYPE && (uintptr_t)a.x % 16 == 0 && a.x_stride % each == 0) {
        for (uint32_t i = threadIdx.x; i < tokens * (ELEMENTS / each); i += THREADS) {
            uint32_t token = i / (ELEMENTS / each), e = i % (ELEMENTS / each) * each;
            if (e < elements) cu_copy16_async(staged + token * row_bytes + e * size, row_of_x(a, rows, token) + (from + e) * size);
        }
        return;
    }
    uint32_t x_size = float_size(a.x_dtype);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < tokens * (ELEMENTS / 2); i += THREADS) {
        uint32_t token = i / (ELEMENTS / 2), e = i % (ELEMENTS / 2) * 2;
        if (e >= elements) continue;
        const uint8_t *x = row_of_x(a, rows, token) + (from + e) * x_size;
        float first = load1(x, a.x_dtype), second = load1(x + x_size, a.x_dtype);
        uint8_t *to = staged + token * row_bytes + e * size;
        if (DTYPE == CBQ_F32) *(float2 *)to = make_float2(first, second);
        else *(uint32_t *)to = cu_pack_bf16(first, second);
    }
}
