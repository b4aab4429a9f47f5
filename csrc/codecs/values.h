/* From codes to values, in lanes. Bits above those of a code do not matter. Every value is exact in float32. */
#pragma once
#include "kinds.h"
#include "../lanes/common.h"

#define CBQ_QUIET_NAN 0x7fc00000

/* Exponent and mantissa are put where float32 has them, and the exponent gets the difference of the two biases. Where e is 0
   there is no leading 1: one more in the exponent makes it 2^(1 - bias) * 1.m, of which the 1 is taken away again. No
   intermediate is a subnormal float32, so a caller who has them flushed gets the same. */
CBQ_FN I float_code_magnitude(I magnitude, cbq_code_kind k) {
    const int one = 1 << 23, offset = (127 - k.bias) * one;
    I bits = i_add(i_shl(magnitude, 23 - k.mantissa), i_set1(offset));
    F subnormal = f_sub(f_of_bits(i_add(bits, i_set1(one))), f_of_bits(i_set1(offset + one)));
    M is_subnormal = m_ieq(i_shr(magnitude, k.mantissa), i_set1(0));
    return i_select(is_subnormal, i_of_bits(subnormal), bits);
}

/* The same where a code is infinity or NaN. */
CBQ_FN I float_code_special(I bits, I code, I magnitude, cbq_code_kind k) {
    const int sign = cbq_code_sign(k), infinity = cbq_code_largest(k) + 1;
    const I nan = i_set1(CBQ_QUIET_NAN);
    if (k.top == CBQ_TOP_ONES) return i_select(m_ieq(magnitude, i_set1(sign - 1)), nan, bits);
    if (k.top == CBQ_TOP_FNUZ) return i_select(m_ieq(i_and(code, i_set1(2 * sign - 1)), i_set1(sign)), nan, bits);
    if (k.top != CBQ_TOP_IEEE) return bits;
    M top = m_ieq(i_shr(magnitude, k.mantissa), i_set1(infinity >> k.mantissa)), is_infinity = m_ieq(magnitude, i_set1(infinity));
    return i_select(top, i_select(is_infinity, i_set1(0x7f800000), nan), bits);
}

CBQ_FN F float_code_value(I code, cbq_code_kind k) {
    const int sign = cbq_code_sign(k);
    I magnitude = i_and(code, i_set1(sign - 1));
    I bits = float_code_special(float_code_magnitude(magnitude, k), code, magnitude, k);
    return f_of_bits(i_or(bits, i_shl(i_and(code, i_set1(sign)), 31 - k.exponent - k.mantissa)));
}

/* The byte goes to the top of its lane, where its sign is the lane's. */
CBQ_FN F fixed_code_value(I code, cbq_code_kind k) { return f_mul(i_to_f(i_shl(code, 24)), f_set1(0x1p-24f / (float)(1 << k.mantissa))); }

/* The byte is float32's exponent, but for its two ends: 0 is the subnormal 2^-127 and 255 a quiet NaN, and both have the top
   mantissa bit set. */
CBQ_FN F scale_code_value(I code) {
    I byte = i_and(code, i_set1(255));
    M is_end = m_or(m_ieq(byte, i_set1(0)), m_ieq(byte, i_set1(255)));
    return f_of_bits(i_or(i_shl(byte, 23), i_where(is_end, i_set1(0x400000))));
}

CBQ_FN F code_value(I code, cbq_code_kind k) {
    if (k.top == CBQ_TOP_FIXED) return fixed_code_value(code, k);
    return k.top == CBQ_TOP_SCALE ? scale_code_value(code) : float_code_value(code, k);
}

/* Codes in bytes may go by binary16, but those of e5m2fnuz: its largest exponent would be infinity's. */
CBQ_FN int cbq_fits_f16(cbq_code_kind k) { return k.top < CBQ_TOP_FIXED && (k.exponent < 5 || k.top == CBQ_TOP_IEEE); }
CBQ_FN F float_code_by_f16(const uint8_t *p, cbq_code_kind k) {
    F v = f_ld_codes_as_f16(p, k.exponent, k.mantissa);
    return k.bias == 15 ? v : f_mul(v, f_set1((float)(1 << (15 - k.bias))));
}
/* A NaN that binary16 does not have as such. Few words have one, and are decoded the other way. */
CBQ_FN int has_nan_of_its_own(const uint8_t *p, cbq_code_kind k) {
    const int sign = cbq_code_sign(k);
    if (k.top == CBQ_TOP_ONES) return u8_has(p, sign - 1, sign - 1);
    return k.top == CBQ_TOP_FNUZ && u8_has(p, 2 * sign - 1, sign);
}

/* The values of CBQ_W codes, one after the other from the lowest bit of a byte. */
CBQ_FN void ld_code_values(const uint8_t *p, int bits, cbq_code_kind k, F v[CBQ_VECTORS]) {
    const int by_f16 = CBQ_HAS_F16_CODES && bits == 8 && cbq_fits_f16(k) && !has_nan_of_its_own(p, k);
    CBQ_UNROLL_ALL
    for (int i = 0; i < CBQ_VECTORS; i++) {
        const uint8_t *at = p + i * CBQ_LANES * bits / 8;
        v[i] = by_f16 ? float_code_by_f16(at, k) : code_value(i_ld_codes(at, bits), k);
    }
}
