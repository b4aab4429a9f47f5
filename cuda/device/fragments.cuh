// Weights in the order in which lanes take them: a permutation of the bits of blocks.
//
// A tile is ROWS rows, a unit 128 elements of k of each (256 where a block has them). Tiles of an expert follow each other, each
// with its units in the order of k; what a tile or a unit has beyond n or k is zero. A unit is
//
//   codes, for each half of 128 elements   bits * 1024 bytes
//   headers, of each block of each row     as they are in the block
//
// Of a half, lane q of four has run q, of 32 elements, and thread 32 w + 4 g + q has it of rows 16 w + g and 16 w + g + 8:
//
//           thread 0          thread 1          ..        thread 127
//   codes   words 0 .. 3      words 0 .. 3      ..        words 0 .. 3
//           words 4 .. 7      words 4 .. 7      ..        words 4 .. 7
//           ..
//
// `bits` words of the first row and as many of the second, so that a load of 16 bytes gives a thread what it needs, and a warp all
// banks. Which bit of which word a code's bit is, its class says (place). Headers: rows 16 w + g and 16 w + g + 8 of a block are
// neighbours, blocks of a row follow, then g, then w.
#pragma once
#include "traits.cuh"
#include "work.cuh"

#include "fragment_formats.h"

// Members of objects: CBQ_FN is static.
#define CU_METHOD __device__ __forceinline__

enum { HALF = 128, RUN = 32 };

// One bit of the words of a run.
struct bit_place {
    uint32_t word, bit;
};

// Elements 2p and 2p + 1 are in the lower and the upper halves of a word, so that they leave it as a pair.
template <int BITS> struct halves {
    CBQ_FN bit_place place(uint32_t e, uint32_t b) {
        uint32_t p = e / 2, half = e % 2 * 16;
        if (BITS == 4) return {p / 4, half + p % 4 * 4 + b};
        if (BITS == 5) return p < 15 ? bit_place{p / 3, half + p % 3 * 5 + b} : bit_place{b, half + 15};
        uint32_t first = p / 8 * 3; // three words of eight pairs: two pairs each, and two more in what is left
        if (p % 8 < 6) return {first + p % 8 / 2, half + p % 2 * 6 + b};
        return b < 4 ? bit_place{first + p % 2 * 2, half + 12 + b} : bit_place{first + 1, half + 12 + p % 2 * 2 + b - 4};
    }
};
struct in_order {
    template <int BITS> CBQ_FN bit_place place(uint32_t e, uint32_t b) { return {e * BITS / 32, e * BITS % 32 + b}; }
};
// Pair p of the four of a word. Turned to the right by TURN[p] it has the mantissa bit at 6, the exponent's at 7 and 8 and the sign at
// 15, of both halves; the last pair has them there already, but for the mantissa at 14.
struct spread_e2m1 {
    CBQ_FN uint32_t turn(uint32_t p) { return p == 0 ? 26 : p == 1 ? 30 : 4; }
    CBQ_FN bit_place place(uint32_t e, uint32_t b) {
        uint32_t p = e / 2 % 4, half = e % 2 * 16, to = b == 3 ? 15 : 6 + b;
        if (p == 3) return {e / 8, half + (b == 0 ? 14 : to)};
        return {e / 8, (half + to + turn(p)) % 32};
    }
};

enum { CLASS_HALVES, CLASS_TABLE, CLASS_E2M1, CLASS_BYTES };

// A format's fragments.
template <class T, int CLASS, int BITS, int HEADER_AT, int HEADER> struct fragments_of : T {
    enum {
        cls = CLASS,
        code_bits = BITS,
        header_at = HEADER_AT,
        header = HEADER,
        unit = (int)T::elements > (int)HALF ? 256 : (int)HALF, // numbers of different enums
        parts = unit / HALF,
        blocks = unit / T::elements,
        codes_bytes = BITS * 1024, // of a half
        headers_at = parts * codes_bytes,
        unit_bytes = headers_at + ROWS * blocks * HEADER,
    };
    static_assert(BITS * T::elements / 8 + HEADER == T::bytes, "codes and header are the block");
    static_assert(unit_bytes % 16 == 0, "units begin at multiples of 16");

    CBQ_FN bit_place place(uint32_t e, uint32_t b) {
        if (CLASS == CLASS_HALVES) return halves<BITS>::place(e, b);
        if (CLASS == CLASS_E2M1) return spread_e2m1::place(e, b);
        return in_order::place<BITS>(e, b);
    }
    // Where a thread's word i is in a half; the last two of an odd number of pairs are a group of their own.
    CBQ_FN uint32_t word_at(uint32_t thread, uint32_t i) {
        const uint32_t wide = 2 * BITS / 4, rest = 2 * BITS % 4;
        return i / 4 * 16 * THREADS + thread * (i / 4 < wide ? 16 : 4 * rest) + i % 4 * 4;
    }
    // Where the header of a block of a row is in a unit.
    CBQ_FN uint32_t header_of(uint32_t row, uint32_t block) {
        return headers_at + (((row / 16 * 8 + row % 8) * blocks + block) * 2 + row % 16 / 8) * HEADER;
    }
};

#define CBQ_FRAGMENTS_OF(f, cls, bits, at, bytes) typedef fragments_of<f##_traits, CLASS_##cls, bits, at, bytes> f##_fragments;
CBQ_FRAGMENTS(CBQ_FRAGMENTS_OF)

template <class F> CBQ_FN uint64_t bytes_of_tile(uint64_t k) { return (k + F::unit - 1) / F::unit * F::unit_bytes; }
static __host__ __device__ __forceinline__ uint64_t tiles_of_rows(uint64_t n) { return (n + ROWS - 1) / ROWS; }
