// Weights for products: bf16(float32 decode), two to a register, in as few instructions as there are.
//
// A code c, an unsigned byte, becomes the float BASE + c by one byte permutation: BASE = 128 has its units in the third byte,
// BASE = 32768, for codes of 8 bits, in the second. What is left is s * (c - offset), rounded once to float32, as decoding does:
//
// - No minimum: fma(s, BASE + c, -s * (BASE + offset)) is that, if s * (BASE + offset) is exact: then the sum before rounding is.
//   d has 11 bits, a group's scale 7, so that BASE + offset may have 6 (13 where a block has one scale, none with float32 scales).
// - A minimum: s * c is exact, codes being of 5 bits at most, so fma(s, c, -m) is (s * c) - m.
//
// Against decoding: a zero may have the other sign, which no sum sees, and an infinite scale gives NaN.
#pragma once
#include "decode.cuh"

#include <math.h>

constexpr int significant_bits(int v) {
    int bits = 0;
    while (v % 2 == 0) v /= 2;
    for (; v; v /= 2) bits++;
    return bits;
}

template <class T> struct byte_codes {
    enum {
        biased = T::is_signed || T::has_table,
        offset = biased ? CBQ_BIAS(T::bits) : T::offset,
        base = T::bits <= 7 ? 128 : 32768,
        scale_bits = T::scales == CBQ_GROUPS ? 18 : T::scales == CBQ_FLOATS && !T::has_table ? 24 : 11,
        fused = !T::min && scale_bits + significant_bits(base + offset) <= 24,
    };
    static_assert(T::finish == SCALED || fused, "what is finished is the product of a scale and a code");
    static_assert(!T::min || T::bits <= 5, "the product of a scale and a code is exact");

    CBQ_FN float widen(uint32_t w, int i) { // BASE + byte i of w
        uint32_t f = base == 128 ? cu_permute(w, 0x43000000u, 0x7044u + 0x100u * i) : cu_permute(w, 0x47000000u, 0x7404u + 0x10u * i);
        return cbq_as_f32(f);
    }
    // A code of a block without a minimum times its scale, exact.
    CBQ_FN float product(uint32_t w, int i, float s, float shift) { return fmaf(s, widen(w, i), shift); }
    // Two weights, of bytes i and j of w; `shift` is what fused() made of s, `tensor` the number of the whole tensor.
    CBQ_FN uint32_t pair(uint32_t w, int i, int j, float s, float m, float shift, float tensor = 1.0f) {
        float x = widen(w, i), y = widen(w, j);
        if (fused) return cu_pack_bf16(finished<T>(fmaf(s, x, shift), tensor), finished<T>(fmaf(s, y, shift), tensor));
        x -= base + offset;
        y -= base + offset;
        return T::min ? cu_pack_bf16(fmaf(s, x, -m), fmaf(s, y, -m)) : cu_pack_bf16(s * x, s * y);
    }
    CBQ_FN float shift(float s) { return fused ? -s * (float)(base + offset) : 0.0f; }
};

// The bytes of a table that the eight nibbles of u choose: of its lower half to low, of its upper half to high.
template <class T> CBQ_FN void look_up8(uint32_t u, uint32_t &low, uint32_t &high) {
    uint32_t t[4] = {0, 0, 0, 0}, index = u & 0x77777777u, which = 0x32103210u | (u & 0x88888888u) >> 1;
#pragma unroll
    for (int i = 0; i < 16; i++) t[i / 4] |= (uint32_t)((int)(T::entry(i) * T::multiple) + CBQ_BIAS(T::bits)) << 8 * (i % 4);
    low = cu_permute(cu_permute(t[0], t[1], index), cu_permute(t[2], t[3], index), which);
    high = cu_permute(cu_permute(t[0], t[1], index >> 16), cu_permute(t[2], t[3], index >> 16), which >> 16);
}

// bf16 of eight quotients, as if each were rounded to float32 first. v * (1 / g) is within two units in the last place of that, and
// rounds to the same bf16 unless the half between two of these is as near: then, and where 1 / g may be no good, it is divided.
CBQ_FN void divided_pairs(const float v[8], float g, uint32_t pairs[4]) {
    float inverse = 1.0f / g, q[8];
    bool is_near = !(fabsf(g) > 0x1p-100f && fabsf(g) < 0x1p100f);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        q[i] = v[i] * inverse;
        is_near |= ((cbq_as_u32(q[i]) - (0x8000u - 2u)) & 0xffffu) <= 4u;
    }
    if (is_near) {
#pragma unroll
        for (int i = 0; i < 8; i++) q[i] = v[i] / g;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) pairs[i] = cu_pack_bf16(q[2 * i], q[2 * i + 1]);
}

// What lane q of four has of run r of a row: elements 4q .. 4q + 3 and 16 + 4q .. 16 + 4q + 3, in four pairs.
template <class T> CBQ_FN void decode8(const uint8_t *row, uint32_t r, uint32_t pairs[4]) {
    typedef byte_codes<T> codes;
    const uint8_t *b = row + r * 32 / T::elements * T::bytes;
    uint32_t q = threadIdx.x % 4, in_block = r % (T::elements / 32), group = in_block * 32 / T::group;
    uint32_t first = T::codes(b, in_block, 4 * q), second = T::codes(b, in_block, 4 * q + 16);
    float s[2], m[2];
    group_scale<T>(b, group, s[0], m[0]);
    s[1] = s[0];
    m[1] = m[0];
    if (T::group < 32) group_scale<T>(b, group + 1, s[1], m[1]);
    s[0] *= 1.0f / T::multiple;
    s[1] *= 1.0f / T::multiple;
    float shift[2] = {codes::shift(s[0]), codes::shift(s[1])};
    if (T::has_table) {
        uint32_t low, high; // first and second alternate in there
        look_up8<T>(first | second << 4, low, high);
        float tensor = tensor_scale<T>(b);
        if (T::finish == OVER) {
            float v[8];
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = codes::product(i / 2 % 2 ? high : low, i / 4 + i % 2 * 2, s[i / 4], shift[i / 4]);
            divided_pairs(v, tensor, pairs);
            return;
        }
        pairs[0] = codes::pair(low, 0, 2, s[0], m[0], shift[0], tensor);
        pairs[1] = codes::pair(high, 0, 2, s[0], m[0], shift[0], tensor);
        pairs[2] = codes::pair(low, 1, 3, s[1], m[1], shift[1], tensor);
        pairs[3] = codes::pair(high, 1, 3, s[1], m[1], shift[1], tensor);
        return;
    }
    if (T::has_book) {
        float x[8];
        book_to_float<T>(first, x);
        book_to_float<T>(second, x + 4);
#pragma unroll
        for (int i = 0; i < 4; i++) pairs[i] = cu_pack_bf16(s[0] * x[2 * i], s[0] * x[2 * i + 1]);
        return;
    }
    if (T::float8) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t w = i < 2 ? first : second;
            pairs[i] = cu_pack_bf16(s[0] * float8<T::float8>(w, i % 2 * 2), s[0] * float8<T::float8>(w, i % 2 * 2 + 1));
        }
        return;
    }
    if (T::is_signed) {
        const uint32_t bias = CBQ_B(CBQ_BIAS(T::bits));
        first = T::bits == 8 ? first ^ bias : cbq_add4(first, bias);
        second = T::bits == 8 ? second ^ bias : cbq_add4(second, bias);
    }
    pairs[0] = codes::pair(first, 0, 1, s[0], m[0], shift[0]);
    pairs[1] = codes::pair(first, 2, 3, s[0], m[0], shift[0]);
    pairs[2] = codes::pair(second, 0, 1, s[1], m[1], shift[1]);
    pairs[3] = codes::pair(second, 2, 3, s[1], m[1], shift[1]);
}
