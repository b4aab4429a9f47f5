// W in fragments: a step of 64 rows is one piece of memory, and a thread's words of it lie in the order in which they are taken.
#pragma once
#include "decode_fragments.cuh"
#include "stage.cuh"

template <class F> struct in_fragments {
    enum { elements = F::unit, long_steps = 1, bf16_pad = 64, f32_pad = 16 }; // after a row of x: two rows of bf16 are then in all banks
    template <int STEP> struct staged {
        enum { units = STEP / F::unit, bytes = units * F::unit_bytes };
    };
    CBQ_FN uint32_t units_in(uint32_t k) { return (k + F::unit - 1) / F::unit; }
    CBQ_FN uint32_t padded(uint32_t k) { return units_in(k) * F::unit; }
    // Sixteen bytes of x: of each half, the first ones of the four lanes' runs, then the second ones.
    CBQ_FN uint32_t x_chunk(uint32_t chunk, uint32_t element) {
        const uint32_t of_run = RUN * element / 16;
        return chunk / (4 * of_run) * (4 * of_run) + chunk % of_run * 4 + chunk / of_run % 4;
    }
    template <int STEP> CBQ_FN void stage(uint8_t *to, const product_args &a, const tile_of_work &t, uint32_t step) {
        uint32_t left = units_in(a.k) - step * staged<STEP>::units, units = left < staged<STEP>::units ? left : staged<STEP>::units;
        const uint8_t *from = a.w + t.expert * a.expert_bytes + t.row / ROWS * bytes_of_tile<F>(a.k) + (uint64_t)step * staged<STEP>::bytes;
#pragma unroll 4
        for (uint32_t i = 16 * threadIdx.x; i < units * F::unit_bytes; i += 16 * THREADS) cu_copy16_async(to + i, from + i);
    }

    CBQ_FN void load_words(const uint8_t *codes, uint32_t words[2 * F::code_bits]) {
        const uint32_t wide = 2 * F::code_bits / 4;
#pragma unroll
        for (uint32_t i = 0; i < wide; i++) {
            uint4 four = *(const uint4 *)(codes + F::word_at(threadIdx.x, 4 * i));
            words[4 * i] = four.x, words[4 * i + 1] = four.y, words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
        }
        if (2 * F::code_bits % 4 == 0) return;
        uint2 two = *(const uint2 *)(codes + F::word_at(threadIdx.x, 4 * wide));
        words[4 * wide] = two.x, words[4 * wide + 1] = two.y;
    }
    // A half of a unit: lane q of four multiplies run q of two rows.
    template <class M>
    CBQ_FN void multiply_half(const uint8_t *codes, run_of<F> &low, run_of<F> &high, const uint8_t *x, uint32_t x_bytes, uint32_t tokens,
                              typename M::state &s) {
        uint32_t words[2 * F::code_bits];
        load_words(codes, words);
        low.prepare();
        high.prepare();
#pragma unroll
        for (int c = 0; c < 4; c++) {
            uint32_t l[4], h[4];
            low.pairs(words, c, l);
            high.pairs(words + F::code_bits, c, h);
            const int gap = M::element == 2 ? 8 : 64; // a run's eight elements are one chunk of bf16, or two neighbours of float32
            M::template add<gap>(l, h, x + 32 * c * M::element, x_bytes, tokens, s);
        }
    }
    template <class M>
    CBQ_FN void multiply_unit(const uint8_t *unit, const uint8_t *x, uint32_t x_bytes, uint32_t tokens, typename M::state &s) {
        uint32_t q = threadIdx.x % 4, row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
        const uint8_t *header = unit + F::header_of(row, F::blocks == 1 ? 0 : q * RUN / F::elements); // that of row + 8 is the next
        run_scales<F> of_low[F::parts], of_high[F::parts];
#pragma unroll
        for (uint32_t half = 0; half < F::parts; half++) {
            of_low[half].read(header, half, q);
            of_high[half].read(header + F::header, half, q);
        }
#pragma unroll 1
        for (uint32_t half = 0; half < F::parts; half++) {
            run_of<F> low, high;
            low.choose(half, of_low[0], of_low[F::parts - 1]);
            high.choose(half, of_high[0], of_high[F::parts - 1]);
            multiply_half<M>(unit + half * F::codes_bytes, low, high, x + half * HALF * M::element, x_bytes, tokens, s);
        }
    }
    template <int STEP, class M>
    CBQ_FN void multiply(const uint8_t *w, const product_args &a, const tile_of_work &t, uint32_t step, const uint8_t *x, uint32_t x_bytes,
                         typename M::state &s) {
        uint32_t left = units_in(a.k) - step * staged<STEP>::units, units = left < staged<STEP>::units ? left : staged<STEP>::units;
        x += threadIdx.x % 4 * 16;
#pragma unroll 1
        for (uint32_t unit = 0; unit < units; unit++)
            multiply_unit<M>(w + unit * F::unit_bytes, x + unit * F::unit * M::element, x_bytes, t.tokens, s);
    }
};
