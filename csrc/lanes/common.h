/* What the lane vocabularies share, in their own words. */
#pragma once

CBQ_FN F f_zero(void) { return f_set1(0.0f); }
CBQ_FN F f_ld(const float *p) { return f_ld_f32((const uint8_t *)p); }
CBQ_FN F f_ld_as(const uint8_t *p, int dtype) {
    if (dtype == CBQ_F32) return f_ld_f32(p);
    return dtype == CBQ_F16 ? f_ld_f16(p) : f_ld_bf16(p);
}
enum { CBQ_OF_32 = 32 / CBQ_LANES }; /* vectors that 32 elements fill */

/* Where bytes do not become floats by way of binary16, nobody calls these. */
#if !defined(CBQ_HAS_F16_CODES)
#define CBQ_HAS_F16_CODES 0
CBQ_FN F f_ld_codes_as_f16(const uint8_t *p, int exponent, int mantissa) { (void)p, (void)exponent, (void)mantissa; return f_zero(); }
CBQ_FN int u8_has(const uint8_t *p, int mask, int value) { (void)p, (void)mask, (void)value; return 1; }
#endif
CBQ_FN int m_any(M m) { return m_bits(m) != 0; }
CBQ_FN int m_all(M m) { return m_bits(m) == (uint32_t)((1ull << CBQ_LANES) - 1); }

/* The reference rounds by adding CBQ_ROUNDER; beyond 2^22 the masked mantissa is what it gets. Both are kept. */
CBQ_FN I f_nearest(F a) {
    I bits = i_of_bits(f_add(a, f_set1(CBQ_ROUNDER)));
    return i_sub(i_and(bits, i_set1(0x7fffff)), i_set1(0x400000));
}
CBQ_FN int cbq_nearest(float a) { return (int)(cbq_as_u32(a + CBQ_ROUNDER) & 0x7fffff) - 0x400000; }
CBQ_FN I i_clamp(I a, int low, int high) { return i_max(i_set1(low), i_min(i_set1(high), a)); }
CBQ_FN int cbq_clamp(int a, int low, int high) { return a < low ? low : a > high ? high : a; }

CBQ_FN float f_smallest(F a) { return -f_largest(f_neg(a)); }

/* n x LANES floats: n (a multiple of 8) neighbours of each of LANES places, `stride` apart, one place to a lane. */
CBQ_FN void f_to_lanes(const float *from, int64_t stride, int n, float *to, int64_t next) {
    for (int i = 0; i < n; i += 8) f_transpose(from + i, stride, to + i * next, next);
}

/* To the nearest integer, halves away from zero, as roundf does: below 2^23 in magnitude. */
CBQ_FN I f_round_away(F a) {
    F almost_half = f_set1(0x1.fffffep-2f); /* one half would carry 0.49999997 to 1 */
    return f_to_i(f_select(m_lt(a, f_zero()), f_sub(a, almost_half), f_add(a, almost_half)));
}
