/* From values to codes, in lanes: to the nearest, ties to the even code. NaN of a kind that has none is 0. */
#pragma once
#include "kinds.h"

/* The code of a magnitude (float32 bits without their sign, no NaN), as if exponents had no end. Two ways to round:
   - 2^(1 - bias) and up, the bits that do not fit are rounded away in the float32's bits, where a carry raises the exponent;
   - below, values are multiples of 2^(1 - bias - mantissa). Adding the float32 whose last bit that is rounds to them. */
CBQ_FN I float_code_round(I bits, cbq_code_kind k) {
    const int drop = 23 - k.mantissa;
    const float smallest_normal = cbq_as_f32((uint32_t)(128 - k.bias) << 23), rounder = cbq_as_f32((uint32_t)(128 - k.bias + drop) << 23);
    I odd = i_and(i_shr(bits, drop), i_set1(1));
    I normal = i_shr(i_add(i_add(bits, i_set1((1 << (drop - 1)) - 1 - ((127 - k.bias) << 23))), odd), drop);
    I subnormal = i_sub(i_of_bits(f_add(f_of_bits(bits), f_set1(rounder))), i_of_bits(f_set1(rounder)));
    return i_select(m_lt(f_of_bits(bits), f_set1(smallest_normal)), subnormal, normal);
}

/* What is beyond the largest code: that one, or what the kind has for it. (In a kind without a -0, its code is NaN.) */
CBQ_FN I float_code_end(I magnitude, cbq_code_kind k, int saturate) {
    const int largest = cbq_code_largest(k);
    I capped = i_min(magnitude, i_set1(largest));
    if (k.top == CBQ_TOP_FINITE) return capped;
    return i_select(m_ieq(capped, magnitude), magnitude, i_set1(saturate ? largest : largest + 1));
}

CBQ_FN I float_code(F x, cbq_code_kind k, int saturate) {
    const int sign_bit = cbq_code_sign(k);
    const I zero = i_set1(0), bits = i_of_bits(x);
    M is_nan = m_ne(x, x);
    I magnitude = float_code_end(float_code_round(i_and(bits, i_set1(0x7fffffff)), k), k, saturate);
    I sign = i_and(i_shr(bits, 31 - k.exponent - k.mantissa), i_set1(sign_bit));
    if (k.top == CBQ_TOP_FNUZ) { /* zero has no sign, and the NaN is a zero with one */
        magnitude = i_select(is_nan, i_set1(sign_bit), magnitude);
        return i_or(magnitude, i_select(m_ieq(magnitude, zero), zero, sign));
    }
    /* ml_dtypes' NaN: the quiet one of e5m2, and the only one of e4m3fn */
    const int nan = k.top == CBQ_TOP_FINITE ? 0 : k.top == CBQ_TOP_ONES ? sign_bit - 1 : (sign_bit - 1) & ~1;
    return i_or(i_select(is_nan, i_set1(nan), magnitude), sign);
}

/* The largest negative code has no counterpart and stays unused, which OCP MX 1.0 allows: a range with one more value on one side
   would move averages. Adding 1.5 * 2^23 rounds, ties to even, and leaves the integer in the lowest byte. */
CBQ_FN I fixed_code(F x, cbq_code_kind k) {
    const float largest = (float)cbq_code_largest(k);
    F scaled = f_mul(x, f_set1((float)(1 << k.mantissa)));
    F clamped = f_min(f_max(scaled, f_set1(-largest)), f_set1(largest));
    return i_of_bits(f_add(f_where(m_eq(x, x), clamped), f_set1(CBQ_ROUNDER)));
}

/* 32 codes, one after the other from the lowest bit of a byte. */
CBQ_FN void st_codes(uint8_t *codes, const I code[CBQ_OF_32], int bits) {
    if (bits == 8) {
        i_st_32_u8(codes, code);
        return;
    }
    CBQ_UNROLL_ALL
    for (int i = 0; i < CBQ_OF_32; i++) i_st_codes(codes + i * CBQ_LANES * bits / 8, code[i], bits);
}

CBQ_FN I code_of(F x, cbq_code_kind k, int saturate) { return k.top == CBQ_TOP_FIXED ? fixed_code(x, k) : float_code(x, k, saturate); }
