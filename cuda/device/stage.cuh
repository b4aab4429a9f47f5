// A step's bytes on their way to shared memory: rows of blocks as they are, rows of x as bf16 or float32.
#pragma once
#include "store.cuh"
#include "traits.cuh"
#include "work.cuh"

// Geometry of a step of so many elements. Rows of blocks begin anywhere, copies at multiples of 16: a row takes the 16-byte
// chunks that it touches (hence the margin around weights). An odd number of chunks from row to row: eight rows are then in
// all banks.
template <class T, int ELEMENTS> struct step_of {
    enum {
        elements = ELEMENTS,
        runs = elements / 32,
        bytes = elements / T::elements * T::bytes,
        chunks = (bytes + 30) / 16,
        row_bytes = T::elements == 1 ? 2 * elements + 32 : 16 * (chunks | 1), // of plain types: as bf16, padded as rows of x are
    };
    static_assert(elements % T::elements == 0 && elements % 128 == 0, "whole blocks, and whole turns of four runs");
};

template <class T> CBQ_FN const uint8_t *row_of_w(const product_args &a, const tile_of_work &t, uint32_t row) {
    uint32_t n = t.row + row < a.n ? t.row + row : a.n - 1; // past the last: its sums are never written
    return a.w + t.expert * a.expert_bytes + (uint64_t)n * (a.k / T::elements * T::bytes);
}

// A chunk is copied by the same thread in every row: it only goes from row to row.
template <class T, class S> CBQ_FN void stage_w(uint8_t *staged, const product_args &a, const tile_of_work &t, uint32_t step) {
    const uint32_t threads = S::chunks <= 8 ? 8 : S::chunks <= 16 ? 16 : 32, chunk = threadIdx.x % threads; // of a row
    static_assert(S::chunks <= 32, "a row's chunks have a thread each");
    uint32_t left = (a.k - step * S::elements) / T::elements * T::bytes, bytes = left < S::bytes ? left : S::bytes;
    const uint8_t *first = row_of_w<T>(a, t, 0) + (uint64_t)step * S::bytes;
    uint32_t row_bytes = a.k / T::elements * T::bytes, last = a.n - 1 - t.row;
#pragma unroll
    for (uint32_t row = threadIdx.x / threads; row < ROWS; row += THREADS / threads) {
        const uint8_t *from = first + (uint64_t)(row < last ? row : last) * row_bytes;
        uint32_t shift = (uint32_t)(uintptr_t)from % 16;
        if (16 * chunk < shift + bytes) cu_copy16_async(staged + row * S::row_bytes + 16 * chunk, from - shift + 16 * chunk);
    }
}
// Where the step's bytes of a row are in there.
template <class T, class S>
CBQ_FN const uint8_t *staged_row(const uint8_t *staged, const product_args &a, const tile_of_work &t, uint32_t row, uint32_t step) {
    const uint8_t *from = row_of_w<T>(a, t, row) + (uint64_t)step * S::bytes;
    return staged + row * S::row_bytes + (uint32_t)(uintptr_t)from % 16;
}

CBQ_FN const uint8_t *row_of_x(const product_args &a, uint32_t row) { return a.x + row * a.x_stride * float_size(a.x_dtype); }

// Rows of x, the first `tokens` of TOKENS, as bf16 or float32 at a distance of `row_bytes`: `elements` from element `from` on, of a
// step of ELEMENTS. What has the type and lies at multiples of 16 is copied; all else is converted, a pair at a time. Where k is `ANY`
// number, zeros follow up to a multiple of 32.
template <int ELEMENTS, int TOKENS, int DTYPE, bool ANY>
CBQ_FN void stage_x(uint8_t *staged, uint32_t row_bytes, const product_args &a, const uint32_t *rows, uint32_t tokens, uint32_t from,
                                               uint32_t elements) {
    const uint32_t size = DTYPE == CBQ_F32 ? 4 : 2, each = 16 / size, chunks = ELEMENTS / each;
    if (a.x_dtype == DTYPE && (uintptr_t)a.x % 16 == 0 && a.x_stride % each == 0 && !(ANY && a.k % 32)) {
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < TOKENS * chunks; i += THREADS) {
            uint32_t token = i / chunks, e = i % chunks * each;
            if (token >= tokens) break;
            if (e < elements) cu_copy16_async(staged + token * row_bytes + e * size, row_of_x(a, rows[token]) + (from + e) * size);
        }
        return;
    }
    uint32_t x_size = float_size(a.x_dtype);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < tokens * (ELEMENTS / 2); i += THREADS) {
        uint32_t token = i / (ELEMENTS / 2), e = i % (ELEMENTS / 2) * 2;
        if (e >= (ANY ? (elements + 31) / 32 * 32 : elements)) continue;
        const uint8_t *x = row_of_x(a, rows[token]) + (from + e) * x_size;
        float first = !ANY || e < elements ? load1(x, a.x_dtype) : 0, second = !ANY || e + 1 < elements ? load1(x + x_size, a.x_dtype) : 0;
        uint8_t *to = staged + token * row_bytes + e * size;
        if (DTYPE == CBQ_F32) *(float2 *)to = make_float2(first, second);
        else *(uint32_t *)to = cu_pack_bf16(first, second);
    }
}
