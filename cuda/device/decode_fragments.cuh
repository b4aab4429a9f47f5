// From a run's words (fragments.cuh) to pairs of bf16: bf16(float32 decode), in as few instructions as there are.
//
// HALVES. A code that lies in the ten lower bits of a half is a subnormal number of binary16, code * 2^(place - 24), which one
//   instruction makes a float of; a scale that is 2^(24 - place) times as large is exact. Then fma(scale, code, -m), or with
//   -offset * scale in the place of -m, rounds as decoding does: see decode_products.cuh.
//   Where a block has one scale d, of 11 bits, and no minimum, it goes in pairs. d is high + low, the upper one rounded to bf16;
//   low is then a multiple of one and at most four units of d's last bit, so it has two bits at most. With c = code - offset, of
//   5 bits at most, low * c is exact, and fma(high, c, low * c) is d * c rounded once.
// TABLE. A lane has 32 codes of one group: it makes the group's 16 weights, and looks up their bytes.
// E2M1. A code's bits where bf16 has sign, exponent and mantissa are its value times 2^-126, subnormal numbers included. Times 2^126
//   and then times the scale, both are exact: a scale has 4 bits at most, a value 2.
#pragma once
#include "decode_products.cuh"
#include "fragments.cuh"

CBQ_FN uint32_t both(float x) { return cu_pack_bf16(x, x); }
CBQ_FN uint32_t multiply_pairs(uint32_t a, uint32_t b) { return cu_fma_bf16x2(a, b, 0x80008000u); } // -0: the sign of a zero stays

// The codes of pair p, at `place` of both halves, with zeros around them; BITS of each.
template <int BITS> struct pair_of_halves {
    enum { mask = ((1 << BITS) - 1) * 0x00010001 };
    CBQ_FN uint32_t at(const uint32_t *w, int p, int &place) {
        place = 0;
        if (BITS == 4) {
            place = p % 2 * 4;
            return (p % 4 < 2 ? w[p / 4] : w[p / 4] >> 8) & (uint32_t)mask << place;
        }
        if (BITS == 5) {
            if (p == 15) {
                uint32_t pair = 0;
#pragma unroll
                for (int b = 0; b < 5; b++) pair = cu_and_or(w[b] >> (15 - b), 0x00010001u << b, pair);
                return pair;
            }
            place = p % 3 == 1 ? 5 : 0;
            return (p % 3 < 2 ? w[p / 3] : w[p / 3] >> 10) & (uint32_t)mask << place;
        }
        const uint32_t *first = w + p / 8 * 3;
        if (p % 8 < 6) return first[p % 8 / 2] >> p % 2 * 6 & (uint32_t)mask;
        return cu_and_or(first[1] >> (p % 2 ? 10 : 8), 0x00300030u, first[p % 2 * 2] >> 12 & 0x000f000fu);
    }
    // The same at place 0, with `base` around them.
    CBQ_FN uint32_t at_end(const uint32_t *w, int p, uint32_t base) {
        if (BITS == 4) return cu_and_or(w[p / 4] >> p % 4 * 4, mask, base);
        int place;
        return p == 15 ? at(w, p, place) | base : cu_and_or(w[p / 3] >> p % 3 * 5, mask, base);
    }
};

// A run of a row: its scales, what prepare() makes of them, and pairs(), which gives elements 8c .. 8c + 7. Each class has its own.
template <class F, int CLASS = F::cls, bool SPLIT = CLASS == CLASS_HALVES && F::scales == CBQ_ONE && !F::min> struct run_of;

// A byte of a word, as a float: the last byte of 2^23, which goes again. Signed ones get 128 added first.
template <bool IS_SIGNED> CBQ_FN float byte_to_float(uint32_t four, uint32_t i) {
    const float base = IS_SIGNED ? 8388608.0f + 128 : 8388608.0f;
    return cbq_as_f32(cu_permute(IS_SIGNED ? four ^ 0x80808080u : four, 0x4b000000u, 0x7440 + i)) - base;
}
// The whole number that a group's scale is: byte `byte` of four.
template <class F> struct scale_of_group {
    CBQ_FN float get(const uint8_t *b, uint32_t four, uint32_t byte) { return byte_to_float<!F::min>(F::s4(b, four), byte); }
};
template <> struct scale_of_group<iq4_xs_fragments> {
    CBQ_FN float get(const uint8_t *b, uint32_t four, uint32_t byte) {
        return cbq_as_f32(0x4b000000u | cbq_iq4_xs_s1(CBQ_AT(iq4_xs, b), 4 * four + byte)) - (8388608.0f + 32);
    }
};

// Scales and minimums of the groups of a run.
template <class F> struct run_scales {
    enum { groups = F::group < RUN ? 2 : 1 };
    float s[groups], m[groups];
    // Of run 4 * half + q of a unit.
    CU_METHOD void read(const uint8_t *header, uint32_t half, uint32_t q) {
        const uint8_t *b = header - F::header_at; // the functions of a format take a block
#pragma unroll
        for (uint32_t i = 0; i < groups; i++) {
            const uint32_t four = groups * half + groups * q / 4, byte = groups * q % 4 + i; // a group's number, where a block is a unit
            if (F::scales == CBQ_GROUPS) s[i] = F::d(b) * scale_of_group<F>::get(b, four, byte);
            else s[i] = F::scales == CBQ_FLOATS ? F::s(b, groups * q % (F::elements / F::group) + i) : F::d(b);
            if (F::min == CBQ_MIN_GROUPS) m[i] = F::dmin(b) * byte_to_float<false>(F::m4(b, four), byte);
            else m[i] = F::min == CBQ_MIN_ONE ? F::dmin(b) : 0;
        }
    }
    CU_METHOD void choose(bool second, const run_scales &a, const run_scales &b) {
#pragma unroll
        for (uint32_t i = 0; i < groups; i++) {
            s[i] = second ? b.s[i] : a.s[i];
            m[i] = second ? b.m[i] : a.m[i];
        }
    }
    CU_METHOD void prepare() {}
};

template <class F> struct run_of<F, CLASS_HALVES, false> : run_scales<F> {
    CU_METHOD void pairs(const uint32_t *w, int c, uint32_t out[4]) const {
        const int i = run_scales<F>::groups == 2 ? c / 2 : 0;
        float shift = F::min ? -this->m[i] : -this->s[i] * F::offset;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int place;
            uint32_t pair = pair_of_halves<F::code_bits>::at(w, 4 * c + j, place);
            float scale = this->s[i] * (float)(1 << (24 - place));
            out[j] = cu_pack_bf16(fmaf(scale, cbq_f16_to_f32(pair & 0xffffu), shift), fmaf(scale, cbq_f16_to_f32(pair >> 16), shift));
        }
    }
};

template <class F> struct run_of<F, CLASS_HALVES, true> : run_scales<F> {
    CU_METHOD void pairs(const uint32_t *w, int c, uint32_t out[4]) const {
        uint32_t high = both(this->s[0]), low = both(this->s[0] - cbq_as_f32(high << 16));
        const uint32_t less = 0xc300c300u + 0x00010001u * F::offset; // -(128 + offset)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t code = cu_fma_bf16x2(pair_of_halves<F::code_bits>::at_end(w, 4 * c + j, 0x43004300u), 0x3f803f80u, less);
            out[j] = cu_fma_bf16x2(code, high, multiply_pairs(code, low));
        }
    }
};

template <class F> struct run_of<F, CLASS_E2M1, false> : run_scales<F> {
    CU_METHOD void pairs(const uint32_t *w, int c, uint32_t out[4]) const {
        const uint32_t scale = both(this->s[run_scales<F>::groups == 2 ? c / 2 : 0]), v = w[c];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t turn = spread_e2m1::turn(j);
            uint32_t tiny = j == 3 ? cu_and_or(v >> 8, 0x00400040u, v & 0x81808180u) : (v >> turn | v << (32 - turn)) & 0x81c081c0u;
            out[j] = multiply_pairs(multiply_pairs(tiny, 0x7e807e80u), scale);
        }
    }
};

template <class F> struct run_of<F, CLASS_TABLE, false> : run_scales<F> {
    uint32_t low[4], high[4]; // bytes of the 16 weights
    CU_METHOD void prepare() {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t first = cu_pack_bf16(this->s[0] * F::entry(4 * i), this->s[0] * F::entry(4 * i + 1));
            uint32_t second = cu_pack_bf16(this->s[0] * F::entry(4 * i + 2), this->s[0] * F::entry(4 * i + 3));
            low[i] = cu_permute(first, second, 0x6420);
            high[i] = cu_permute(first, second, 0x7531);
        }
    }
    CU_METHOD void pairs(const uint32_t *w, int c, uint32_t out[4]) const {
        uint32_t index = w[c] & 0x77777777u, which = cu_and_or(w[c] >> 1, 0x44444444u, 0x32103210u);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t l = cu_permute(cu_permute(low[0], low[1], index), cu_permute(low[2], low[3], index), which);
            uint32_t h = cu_permute(cu_permute(high[0], high[1], index), cu_permute(high[2], high[3], index), which);
            out[2 * i] = cu_permute(l, h, 0x5140);
            out[2 * i + 1] = cu_permute(l, h, 0x7362);
            index >>= 16;
            which >>= 16;
        }
    }
};

template <class F> struct run_of<F, CLASS_BYTES, false> : run_scales<F> {
    CU_METHOD void pairs(const uint32_t *w, int c, uint32_t out[4]) const {
        typedef byte_codes<F> codes;
        float shift = codes::shift(this->s[0]);
#pragma unroll
        for (int j = 0; j < 4; j++) out[j] = codes::pair(w[2 * c + j / 2], j % 2 * 2, j % 2 * 2 + 1, this->s[0], 0, shift);
    }
};
