/* The lane vocabulary of AVX-512: sixteen lanes. README.md says what the names mean. */
#pragma once
#include "pieces.h"

typedef __mmask16 M;

CBQ_FN F f_sub(F a, F b) { return _mm512_sub_ps(a, b); }
CBQ_FN F f_div(F a, F b) { return _mm512_div_ps(a, b); }
CBQ_FN F f_sqrt(F a) { return _mm512_sqrt_ps(a); }
CBQ_FN F f_of_bits(I a) { return _mm512_castsi512_ps(a); }
CBQ_FN I i_of_bits(F a) { return _mm512_castps_si512(a); }
CBQ_FN F f_abs(F a) { return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff))); }
CBQ_FN F f_neg(F a) { return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32(INT32_MIN))); }
CBQ_FN I f_to_i(F a) { return _mm512_cvttps_epi32(a); }
CBQ_FN F f_approx_inverse(F a) { return _mm512_rcp14_ps(a); }

CBQ_FN M m_lt(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
CBQ_FN M m_le(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
CBQ_FN M m_eq(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
CBQ_FN M m_ne(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ); }
CBQ_FN M m_not_lt(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }
CBQ_FN M m_and(M a, M b) { return (M)(a & b); }
CBQ_FN M m_or(M a, M b) { return (M)(a | b); }
CBQ_FN M m_andnot(M a, M b) { return (M)(a & ~b); }
CBQ_FN uint32_t m_bits(M m) { return m; }
CBQ_FN M m_of_bits(uint32_t bits) { return (M)bits; }
CBQ_FN F f_select(M m, F yes, F no) { return _mm512_mask_blend_ps(m, no, yes); }
CBQ_FN F f_where(M m, F a) { return _mm512_maskz_mov_ps(m, a); }
CBQ_FN F f_min(F a, F b) { return _mm512_min_ps(a, b); }
CBQ_FN F f_max(F a, F b) { return _mm512_max_ps(a, b); }
CBQ_FN F f_swap_pairs(F a) { return _mm512_shuffle_ps(a, a, 0xb1); }

CBQ_FN I i_sub(I a, I b) { return _mm512_sub_epi32(a, b); }
CBQ_FN I i_or(I a, I b) { return _mm512_or_si512(a, b); }
CBQ_FN I i_shl(I a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
CBQ_FN I i_shr(I a, int n) { return _mm512_srli_epi32(a, (unsigned)n); }
CBQ_FN M m_ieq(I a, I b) { return _mm512_cmpeq_epi32_mask(a, b); }
CBQ_FN I i_select(M m, I yes, I no) { return _mm512_mask_blend_epi32(m, no, yes); }
CBQ_FN I i_where(M m, I a) { return _mm512_maskz_mov_epi32(m, a); }
CBQ_FN I i_min(I a, I b) { return _mm512_min_epi32(a, b); }
CBQ_FN I i_max(I a, I b) { return _mm512_max_epi32(a, b); }
CBQ_FN void i_st(int32_t *to, I a) { _mm512_storeu_si512((void *)to, a); }
CBQ_FN I i_ld(const int32_t *p) { return _mm512_loadu_si512((const void *)p); }
CBQ_FN void i_st_u8(uint8_t *to, I a) { _mm_storeu_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8(a)); }
CBQ_FN M m_ilt(I a, I b) { return _mm512_cmpgt_epi32_mask(b, a); }
CBQ_FN void i_st_32_u8(uint8_t *to, const I a[2]) { i_st_u8(to, a[0]), i_st_u8(to + 16, a[1]); }
CBQ_FN uint32_t u8_bits(const uint8_t *p, int bit) {
    return _mm256_test_epi8_mask(_mm256_loadu_si256((const __m256i *)(const void *)p), _mm256_set1_epi8((char)(1 << bit)));
}
CBQ_FN I i_ld_u16(const uint16_t *p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)); }
/* Four codes of 4 or 6 bits begin a byte: those bytes to each of four lanes, then every lane is shifted to its own. */
CBQ_FN __m512i i_four_shifts(int bits) {
    const int a = bits, b = 2 * bits, c = 3 * bits;
    return _mm512_setr_epi32(0, a, b, c, 0, a, b, c, 0, a, b, c, 0, a, b, c);
}
CBQ_FN I i_ld_codes(const uint8_t *p, int bits) {
    if (bits == 8) return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    const int next = bits / 2 * 0x010101, a = 0x020100, b = a + next, c = b + next, d = c + next;
    __m128i packed = bits == 6 ? _mm_maskz_loadu_epi32(7, p) : _mm_loadl_epi64((const __m128i *)(const void *)p);
    __m512i fours = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(packed), _mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d));
    return _mm512_srlv_epi32(fours, i_four_shifts(bits));
}
#define CBQ_HAS_F16_CODES 1
CBQ_FN F f_ld_codes_as_f16(const uint8_t *p, int exponent, int mantissa) {
    __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m256i h; /* the sign in front, then copies of it, which the mask takes away */
    if (exponent + mantissa == 7) h = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 10 - mantissa);
    else h = _mm256_srai_epi16(_mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 15 - exponent - mantissa), 5 - exponent);
    return _mm512_cvtph_ps(_mm256_and_si256(h, _mm256_set1_epi16(cbq_f16_mask(exponent))));
}
CBQ_FN int u8_has(const uint8_t *p, int mask, int value) {
    __m256i masked = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)p), _mm256_set1_epi8((char)mask));
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(masked, _mm256_set1_epi8((char)value))) != 0;
}
CBQ_FN void i_st_codes(uint8_t *to, I a, int bits) {
    __m512i v = _mm512_sllv_epi32(a, i_four_shifts(bits));
    v = _mm512_or_si512(v, _mm512_srli_epi64(v, 32));
    v = _mm512_or_si512(v, _mm512_unpackhi_epi64(v, v));
    const __m512i twos = _mm512_setr_epi32(0x11100100, 0x31302120, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i threes = _mm512_setr_epi32(0x10020100, 0x21201211, 0x32313022, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    __m128i packed = _mm512_castsi512_si128(_mm512_permutexvar_epi8(bits == 4 ? twos : threes, v));
    _mm_storel_epi64((__m128i *)(void *)to, packed);
    int32_t rest = _mm_extract_epi32(packed, 2);
    if (bits == 6) memcpy(to + 8, &rest, 4);
}
CBQ_FN __m256 f_ld8_f64_odd(const uint8_t *p) {
    const __m512i beyond = _mm512_set1_epi64(CBQ_BEYOND_F32);
    __m512i u = _mm512_loadu_si512((const void *)p);
    u = _mm512_or_si512(u, _mm512_add_epi64(_mm512_and_si512(u, beyond), beyond));
    return _mm512_cvtpd_ps(_mm512_castsi512_pd(_mm512_andnot_si512(beyond, u)));
}
CBQ_FN F f_ld_f64_odd(const uint8_t *p) { return _mm512_insertf32x8(_mm512_castps256_ps512(f_ld8_f64_odd(p)), f_ld8_f64_odd(p + 64), 1); }

typedef __m512 T;
CBQ_FN T t_load8(const float *p) { return _mm512_broadcast_f32x8(_mm256_loadu_ps(p)); } /* twice: bit 3 of an index does not matter */
CBQ_FN T t_load16(const float *p) { return _mm512_loadu_ps(p); }
CBQ_FN F t_pick8(T t, I i) { return _mm512_permutexvar_ps(i, t); }
CBQ_FN F t_pick16(T t, I i) { return _mm512_permutexvar_ps(i, t); }

CBQ_FN __m512 f_gather4(const float *from, int64_t stride) {
    __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(from));
    v = _mm512_insertf32x4(v, _mm_loadu_ps(from + 4 * stride), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps(from + 8 * stride), 2);
    return _mm512_insertf32x4(v, _mm_loadu_ps(from + 12 * stride), 3);
}
CBQ_FN void f_transpose(const float *from, int64_t stride, float *to, int64_t next) {
    for (int half = 0; half < 2; half++, from += 4, to += 4 * next) {
        __m512 a = f_gather4(from, stride), b = f_gather4(from + stride, stride);
        __m512 c = f_gather4(from + 2 * stride, stride), d = f_gather4(from + 3 * stride, stride);
        __m512 ab = _mm512_unpacklo_ps(a, b), cd = _mm512_unpacklo_ps(c, d);
        _mm512_storeu_ps(to, _mm512_shuffle_ps(ab, cd, 0x44));
        _mm512_storeu_ps(to + next, _mm512_shuffle_ps(ab, cd, 0xee));
        ab = _mm512_unpackhi_ps(a, b), cd = _mm512_unpackhi_ps(c, d);
        _mm512_storeu_ps(to + 2 * next, _mm512_shuffle_ps(ab, cd, 0x44));
        _mm512_storeu_ps(to + 3 * next, _mm512_shuffle_ps(ab, cd, 0xee));
    }
}

CBQ_FN float f_largest(F a) {
    __m256 half = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
/* Vectors are halved in pairs until one holds a lane of each: quarters 0 .. 3 of it are v[0..3], v[4..7], .. */
CBQ_FN F f_sum_each(const F v[16]) {
    __m512 halves[8], quarters[4], pairs[2];
    CBQ_UNROLL_ALL
    for (int i = 0; i < 8; i++) {
        __m512 a = v[i / 4 * 8 + i % 4], b = v[i / 4 * 8 + i % 4 + 4];
        halves[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    }
    CBQ_UNROLL_ALL
    for (int i = 0; i < 4; i++) {
        __m512 a = halves[i], b = halves[i + 4];
        quarters[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    }
    CBQ_UNROLL_ALL
    for (int i = 0; i < 2; i++)
        pairs[i] = _mm512_add_ps(_mm512_unpacklo_ps(quarters[i], quarters[i + 2]), _mm512_unpackhi_ps(quarters[i], quarters[i + 2]));
    return _mm512_add_ps(_mm512_unpacklo_ps(pairs[0], pairs[1]), _mm512_unpackhi_ps(pairs[0], pairs[1]));
}
