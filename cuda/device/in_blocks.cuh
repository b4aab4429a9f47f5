// W in blocks as in a file: rows of blocks go to shared memory as they are.
#pragma once
#include "decode_products.cuh"
#include "stage.cuh"

// Geometry of a step of so many elements. Rows of blocks begin anywhere, copies at multiples of 16: a row takes the 16-byte
// chunks that it touches (hence the margin around weights). An odd number of chunks from row to row: eight rows are then in
// all banks.
template <class T, int ELEMENTS> struct step_of {
    enum {
        elements = ELEMENTS,
        runs = elements / 32,
        bytes = elements / T::elements * T::bytes,
        chunks = (bytes + 30) / 16,
        row_bytes = 16 * (chunks | 1),
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

template <class T> struct in_blocks {
    enum { elements = T::elements, long_steps = 1, bf16_pad = 32, f32_pad = 16 }; // after a row of x: four rows of bf16 are then in all banks
    template <int STEP> struct staged {
        enum { bytes = ROWS * step_of<T, STEP>::row_bytes };
    };
    CBQ_FN uint32_t padded(uint32_t k) { return k; }
    CBQ_FN uint32_t x_chunk(uint32_t chunk, uint32_t) { return chunk; }
    template <int STEP> CBQ_FN void stage(uint8_t *staged, const product_args &a, const tile_of_work &t, uint32_t step) {
        stage_w<T, step_of<T, STEP>>(staged, a, t, step);
    }

    // Runs of 32; lane q of four has of each elements 4q .. 4q + 3 and 16 + 4q .. 16 + 4q + 3.
    template <class M>
    CBQ_FN void run(const uint8_t *low, const uint8_t *high, uint32_t r, const uint8_t *x, uint32_t x_bytes, uint32_t tokens,
                    typename M::state &s) {
        uint32_t l[4], h[4];
        decode8<T>(low, r, l);
        decode8<T>(high, r, h);
        M::template add<16 * M::element>(l, h, x + (32 * r + threadIdx.x % 4 * 4) * M::element, x_bytes, tokens, s);
    }
    template <int STEP, class M>
    CBQ_FN void multiply(const uint8_t *staged, const product_args &a, const tile_of_work &t, uint32_t step, const uint8_t *x, uint32_t x_bytes,
                         typename M::state &s) {
        typedef step_of<T, STEP> S;
        uint32_t runs = (a.k - step * S::elements) / 32, row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
        const uint8_t *low = staged_row<T, S>(staged, a, t, row, step), *high = staged_row<T, S>(staged, a, t, row + 8, step);
        uint32_t quads = runs / 4 < S::runs / 4 ? runs / 4 : S::runs / 4;
#pragma unroll 1
        for (uint32_t quad = 0; quad < quads; quad++) { // four runs, unrolled: they share words of scales
#pragma unroll
            for (uint32_t r = 0; r < 4; r++) run<M>(low, high, 4 * quad + r, x, x_bytes, t.tokens, s);
        }
        if (T::elements < 128 && quads < S::runs / 4) { // the end of k
#pragma unroll 1
            for (uint32_t r = 4 * quads; r < runs; r++) run<M>(low, high, r, x, x_bytes, t.tokens, s);
        }
    }
};
