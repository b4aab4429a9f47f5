// Weights of plain float types in products: rounded to bf16 on their way to shared memory, where they then lie as rows of x do.
// So any K will do: what a run of 32 has beyond the end of a row is zeros there, and in x too.
#pragma once
#include "stage.cuh"

// Rows as those of formats: a block is one element, which no other code of a block's ever sees.
#define CBQ_PLAIN_TAG(f, tag, ...) f##_tag = tag,
enum { CBQ_FORMATS(CBQ_NOTHING, CBQ_PLAIN_TAG) };
#define CBQ_PLAIN_PRODUCTS(ROW) ROW(f32, f32_tag, 1, 4) ROW(f16, f16_tag, 1, 2) ROW(bf16, bf16_tag, 1, 2)

#define CBQ_PLAIN_TRAITS(f, format_tag, n, size) \
    struct f##_traits { \
        enum { tag = format_tag, elements = n, bytes = size }; \
        CBQ_FN float value(const uint8_t *p) { return cbq_##f##_value(p); } \
    };
CBQ_PLAIN_PRODUCTS(CBQ_PLAIN_TRAITS)

// Rows of a step as bf16, padded as rows of x are.
template <int ELEMENTS> struct plain_step {
    enum { elements = ELEMENTS, runs = elements / 32, row_bytes = 2 * elements + 32 };
};

// Eight elements at a multiple of 16 bytes to four pairs.
template <class T> CBQ_FN uint4 pairs_of_eight(const uint4 raw[T::bytes / 2]) {
    const uint8_t *e = (const uint8_t *)raw;
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++) pairs[i] = cu_pack_bf16(T::value(e + 2 * i * T::bytes), T::value(e + (2 * i + 1) * T::bytes));
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// Rows that begin at multiples of 16 bytes and end with whole eights: chunk i of a step, of row i / eights.
template <class T, class S> struct eights_of {
    enum { eights = S::elements / 8, all = ROWS * eights };
    const uint8_t *first;
    uint32_t row_bytes, last, elements;
    CBQ_FN uint32_t element(uint32_t i) { return i % eights * 8; }
    CBQ_FN uint8_t *place(uint8_t *staged, uint32_t i) { return staged + i / eights * S::row_bytes + 2 * element(i); }
    __device__ __forceinline__ const uint4 *from(uint32_t i) const {
        uint32_t row = i / eights;
        return (const uint4 *)(first + (uint64_t)(row < last ? row : last) * row_bytes + element(i) * T::bytes);
    }
};

// What is bf16 is copied.
template <class T, class S> CBQ_FN void copy_eights(uint8_t *staged, const eights_of<T, S> &w) {
#pragma unroll
    for (uint32_t i = threadIdx.x; i < w.all; i += THREADS) {
        if (w.element(i) < w.elements) cu_copy16_async(w.place(staged, i), w.from(i));
        else *(uint4 *)w.place(staged, i) = make_uint4(0, 0, 0, 0);
    }
}

// All else: four loads are on their way before the first is stored.
template <class T, class S> CBQ_FN void convert_eights(uint8_t *staged, const eights_of<T, S> &w) {
    enum { AT_ONCE = 4, PARTS = T::bytes / 2 };
    static_assert(w.all % (THREADS * AT_ONCE) == 0, "all threads take whole turns");
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < w.all; i += THREADS * AT_ONCE) {
        uint4 raw[AT_ONCE][PARTS];
#pragma unroll
        for (uint32_t j = 0; j < AT_ONCE; j++)
#pragma unroll
            for (uint32_t part = 0; part < PARTS; part++)
                raw[j][part] = w.element(i + j * THREADS) < w.elements ? w.from(i + j * THREADS)[part] : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (uint32_t j = 0; j < AT_ONCE; j++) *(uint4 *)w.place(staged, i + j * THREADS) = pairs_of_eight<T>(raw[j]);
    }
}

// Any other rows, a pair at a time, with zeros behind their end.
template <class T, class S> CBQ_FN void stage_pairs(uint8_t *staged, const uint8_t *first, uint32_t row_bytes, uint32_t last, uint32_t elements) {
    const uint32_t pairs = S::elements / 2;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < ROWS * pairs; i += THREADS) {
        uint32_t row = i / pairs, e = i % pairs * 2;
        const uint8_t *from = first + (uint64_t)(row < last ? row : last) * row_bytes + e * T::bytes;
        float x = e < elements ? T::value(from) : 0.0f, y = e + 1 < elements ? T::value(from + T::bytes) : 0.0f;
        *(uint32_t *)(staged + row * S::row_bytes + 2 * e) = cu_pack_bf16(x, y);
    }
}

template <class T, class S> CBQ_FN void stage_plain(uint8_t *staged, const product_args &a, const tile_of_work &t, uint32_t step) {
    uint32_t left = a.k - step * S::elements, elements = left < S::elements ? left : S::elements;
    uint32_t row_bytes = a.k * T::bytes, last = a.n - 1 - t.row;
    const uint8_t *first = a.w + t.expert * a.expert_bytes + (uint64_t)t.row * row_bytes + (uint64_t)step * S::elements * T::bytes;
    if (a.k % 8) {
        stage_pairs<T, S>(staged, first, row_bytes, last, elements);
        return;
    }
    eights_of<T, S> w = {first, row_bytes, last, elements};
    if constexpr (T::tag == bf16_tag) copy_eights(staged, w);
    else convert_eights(staged, w);
}

template <class T> struct in_plain {
    enum { elements = T::elements, long_steps = 0, bf16_pad = 32, f32_pad = 16 };
    template <int STEP> struct staged {
        enum { bytes = ROWS * plain_step<STEP>::row_bytes };
    };
    CBQ_FN uint32_t padded(uint32_t k) { return (k + 31) / 32 * 32; }
    CBQ_FN uint32_t x_chunk(uint32_t chunk, uint32_t) { return chunk; }
    template <int STEP> CBQ_FN void stage(uint8_t *staged, const product_args &a, const tile_of_work &t, uint32_t step) {
        stage_plain<T, plain_step<STEP>>(staged, a, t, step);
    }

    // What decode8 promises.
    CBQ_FN void weights8(const uint8_t *row, uint32_t r, uint32_t pairs[4]) {
        const uint8_t *words = row + r * 64 + threadIdx.x % 4 * 8;
        uint2 first = *(const uint2 *)words, second = *(const uint2 *)(words + 32);
        pairs[0] = first.x;
        pairs[1] = first.y;
        pairs[2] = second.x;
        pairs[3] = second.y;
    }
    template <int STEP, class M>
    CBQ_FN void multiply(const uint8_t *staged, const product_args &a, const tile_of_work &t, uint32_t step, const uint8_t *x, uint32_t x_bytes,
                         typename M::state &s) {
        typedef plain_step<STEP> S;
        uint32_t left = padded(a.k - step * S::elements) / 32, runs = left < S::runs ? left : S::runs;
        const uint8_t *low = staged + (threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) * S::row_bytes, *high = low + 8 * S::row_bytes;
#pragma unroll 2
        for (uint32_t r = 0; r < runs; r++) {
            uint32_t l[4], h[4];
            weights8(low, r, l);
            weights8(high, r, h);
            M::template add<16 * M::element>(l, h, x + (32 * r + threadIdx.x % 4 * 4) * M::element, x_bytes, t.tokens, s);
        }
    }
};
