// Four codes to four floats, and the scales of a group: the device's consumer of the word contract.
#pragma once
#include "traits.cuh"

#include <instructions.cuh>

// Sixteen bytes looked up by the nibbles of w, one in each byte. The four nibbles are packed into 16 bits; prmt takes
// three bits of each as an index into eight bytes, and the fourth chooses between two such look-ups.
CBQ_FN uint32_t lookup16(uint32_t w, const uint32_t table[4]) {
    uint32_t nibbles = cu_permute(w | w >> 4, 0, 0x4420), index = nibbles & 0x7777u;
    uint32_t low = cu_permute(table[0], table[1], index), high = cu_permute(table[2], table[3], index);
    return cu_permute(low, high, 0x3210u | (nibbles & 0x8888u) >> 1);
}

// The table's floats are exact as bf16: look up their two upper bytes.
template <class T> CBQ_FN void table_to_float(W w, float x[4]) {
    uint32_t low[4] = {0, 0, 0, 0}, high[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 16; i++) {
        uint32_t bf16 = cbq_as_u32(T::entry(i)) >> 16;
        low[i / 4] |= (bf16 & 255u) << 8 * (i % 4);
        high[i / 4] |= (bf16 >> 8) << 8 * (i % 4);
    }
    uint32_t l = lookup16(w, low), h = lookup16(w, high);
    uint32_t first = cu_permute(l, h, 0x5140), second = cu_permute(l, h, 0x7362); // pairs of bf16
    x[0] = cbq_as_f32(first << 16);
    x[1] = cbq_as_f32(first & 0xffff0000u);
    x[2] = cbq_as_f32(second << 16);
    x[3] = cbq_as_f32(second & 0xffff0000u);
}

// Any floats: look up each of their four bytes, and put those of a float together again.
template <class T> CBQ_FN void book_to_float(W w, float x[4]) {
    uint32_t b[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t table[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 16; i++) table[i / 4] |= (cbq_as_u32(T::entry(i)) >> 8 * k & 255u) << 8 * (i % 4);
        b[k] = lookup16(w, table);
    }
    uint32_t low[2] = {cu_permute(b[0], b[1], 0x5140), cu_permute(b[0], b[1], 0x7362)};
    uint32_t high[2] = {cu_permute(b[2], b[3], 0x5140), cu_permute(b[2], b[3], 0x7362)};
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = cbq_as_f32(cu_permute(low[i / 2], high[i / 2], i % 2 ? 0x7632 : 0x5410));
}

// The code as the last byte of 2^23: subtracting 2^23 and the offset is exact, and needs no conversion. Signed codes
// get 128 added first.
template <class T> CBQ_FN void codes_to_float(W w, float x[4]) {
    if (T::is_signed) w ^= 0x80808080u;
    const float base = 8388608.0f + (T::is_signed ? 128 : T::offset);
    x[0] = cbq_as_f32(cu_permute(w, 0x4b000000u, 0x7440)) - base;
    x[1] = cbq_as_f32(cu_permute(w, 0x4b000000u, 0x7441)) - base;
    x[2] = cbq_as_f32(cu_permute(w, 0x4b000000u, 0x7442)) - base;
    x[3] = cbq_as_f32(cu_permute(w, 0x4b000000u, 0x7443)) - base;
}

CBQ_FN float signed_byte(uint32_t four, uint32_t i) { return (float)(int8_t)(four >> 8 * i); }

// Scale and minimum of group g.
template <class T> CBQ_FN void group_scale(const uint8_t *b, uint32_t g, float &s, float &m) {
    if (T::scales == CBQ_FLOATS) s = T::s(b, g);
    else if (T::scales == CBQ_GROUPS) s = T::d(b) * signed_byte(T::s4(b, g / 4), g % 4);
    else s = T::d(b);
    if (T::min == CBQ_MIN_GROUPS) m = T::dmin(b) * signed_byte(T::m4(b, g / 4), g % 4);
    else m = T::min == CBQ_MIN_ONE ? T::dmin(b) : 0.0f;
}

// What is left to do once a code is multiplied with its scale: `tensor` is the tensor's number, the last four bytes of a block.
template <class T> CBQ_FN float tensor_scale(const uint8_t *b) { return T::finish == SCALED ? 1.0f : cbq_as_f32(cbq_u32(b + T::bytes - 4, 4)); }
template <class T> CBQ_FN float finished(float x, float tensor) { return T::finish == TIMES ? x * tensor : T::finish == OVER ? x / tensor : x; }

// Compiled with -fmad=false: products are exact, but the sign of a zero is not that of a fused one.
template <class T> CBQ_FN void codes_to_values(W w, float s, float m, float x[4], float tensor = 1.0f) {
    if (T::has_table) table_to_float<T>(w, x);
    else if (T::has_book) book_to_float<T>(w, x);
    else if (T::float8)
        for (int i = 0; i < 4; i++) x[i] = float8<T::float8>(w, i);
    else codes_to_float<T>(w, x);
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = T::min ? s * x[i] - m : finished<T>(s * x[i], tensor);
}
// Elements 4 c .. 4 c + 3 of run r.
template <class T> CBQ_FN void decode4(const uint8_t *b, uint32_t r, uint32_t c, float s, float m, float x[4]) {
    codes_to_values<T>(T::codes(b, r, 4 * c), s, m, x, tensor_scale<T>(b));
}
