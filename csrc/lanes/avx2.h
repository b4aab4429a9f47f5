/* The lane vocabulary of AVX2: eight lanes. README.md says what the names mean. */
#pragma once
#include "pieces.h"

typedef __m256 M; /* all bits of a lane where it holds */

CBQ_FN F f_sub(F a, F b) { return _mm256_sub_ps(a, b); }
CBQ_FN F f_div(F a, F b) { return _mm256_div_ps(a, b); }
CBQ_FN F f_sqrt(F a) { return _mm256_sqrt_ps(a); }
CBQ_FN F f_of_bits(I a) { return _mm256_castsi256_ps(a); }
CBQ_FN I i_of_bits(F a) { return _mm256_castps_si256(a); }
CBQ_FN F f_abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
CBQ_FN F f_neg(F a) { return _mm256_xor_ps(_mm256_set1_ps(-0.0f), a); }
CBQ_FN I f_to_i(F a) { return _mm256_cvttps_epi32(a); }
CBQ_FN F f_approx_inverse(F a) { return _mm256_rcp_ps(a); }

CBQ_FN M m_lt(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
CBQ_FN M m_le(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
CBQ_FN M m_eq(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
CBQ_FN M m_ne(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_NEQ_UQ); }
CBQ_FN M m_not_lt(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_NLT_UQ); }
CBQ_FN M m_and(M a, M b) { return _mm256_and_ps(a, b); }
CBQ_FN M m_or(M a, M b) { return _mm256_or_ps(a, b); }
CBQ_FN M m_andnot(M a, M b) { return _mm256_andnot_ps(b, a); }
CBQ_FN uint32_t m_bits(M m) { return (uint32_t)_mm256_movemask_ps(m); }
CBQ_FN M m_of_bits(uint32_t bits) {
    __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), bit), bit));
}
CBQ_FN F f_select(M m, F yes, F no) { return _mm256_blendv_ps(no, yes, m); }
CBQ_FN F f_where(M m, F a) { return _mm256_and_ps(m, a); }
CBQ_FN F f_min(F a, F b) { return _mm256_min_ps(a, b); }
CBQ_FN F f_max(F a, F b) { return _mm256_max_ps(a, b); }
CBQ_FN F f_swap_pairs(F a) { return _mm256_permute_ps(a, 0xb1); }

CBQ_FN I i_sub(I a, I b) { return _mm256_sub_epi32(a, b); }
CBQ_FN I i_or(I a, I b) { return _mm256_or_si256(a, b); }
CBQ_FN I i_shl(I a, int n) { return _mm256_slli_epi32(a, n); }
CBQ_FN I i_shr(I a, int n) { return _mm256_srli_epi32(a, n); }
CBQ_FN M m_ieq(I a, I b) { return _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b)); }
CBQ_FN I i_select(M m, I yes, I no) { return _mm256_blendv_epi8(no, yes, _mm256_castps_si256(m)); }
CBQ_FN I i_where(M m, I a) { return _mm256_and_si256(_mm256_castps_si256(m), a); }
CBQ_FN I i_min(I a, I b) { return _mm256_min_epi32(a, b); }
CBQ_FN I i_max(I a, I b) { return _mm256_max_epi32(a, b); }
CBQ_FN void i_st(int32_t *to, I a) { _mm256_storeu_si256((__m256i *)(void *)to, a); }
CBQ_FN I i_ld(const int32_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
CBQ_FN M m_ilt(I a, I b) { return _mm256_castsi256_ps(_mm256_cmpgt_epi32(b, a)); }
CBQ_FN void i_st_u8(uint8_t *to, I a) {
    const __m256i lowest = _mm256_set1_epi32(0x0c080400);
    __m256i four = _mm256_shuffle_epi8(a, lowest);
    _mm_storel_epi64((__m128i *)(void *)to, _mm_unpacklo_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1)));
}
CBQ_FN void i_st_32_u8(uint8_t *to, const I a[4]) {
    const __m256i byte = _mm256_set1_epi32(255), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i low = _mm256_packus_epi32(_mm256_and_si256(a[0], byte), _mm256_and_si256(a[1], byte));
    __m256i high = _mm256_packus_epi32(_mm256_and_si256(a[2], byte), _mm256_and_si256(a[3], byte));
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order));
}
CBQ_FN uint32_t u8_bits(const uint8_t *p, int bit) {
    return (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p), 7 - bit));
}
CBQ_FN I i_ld_u16(const uint16_t *p) { return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)); }
/* Four codes of 4 or 6 bits begin a byte: those bytes to each of four lanes, then every lane is shifted to its own. */
CBQ_FN __m256i i_four_shifts(int bits) { return _mm256_setr_epi32(0, bits, 2 * bits, 3 * bits, 0, bits, 2 * bits, 3 * bits); }
CBQ_FN I i_ld_codes(const uint8_t *p, int bits) {
    if (bits == 8) return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    uint64_t v = cbq_few_bytes(p, bits);
    const int low = 0x020100, high = low + bits / 2 * 0x010101;
    __m256i fours = _mm256_shuffle_epi8(_mm256_set1_epi64x((long long)v), _mm256_setr_epi32(low, low, low, low, high, high, high, high));
    return _mm256_srlv_epi32(fours, i_four_shifts(bits));
}
#define CBQ_HAS_F16_CODES 1
CBQ_FN F f_ld_codes_as_f16(const uint8_t *p, int exponent, int mantissa) {
    __m128i codes = _mm_loadl_epi64((const __m128i *)(const void *)p), h; /* as in avx512.h */
    if (exponent + mantissa == 7) h = _mm_slli_epi16(_mm_cvtepi8_epi16(codes), 10 - mantissa);
    else h = _mm_srai_epi16(_mm_slli_epi16(_mm_cvtepu8_epi16(codes), 15 - exponent - mantissa), 5 - exponent);
    return _mm256_cvtph_ps(_mm_and_si128(h, _mm_set1_epi16(cbq_f16_mask(exponent))));
}
CBQ_FN int u8_has(const uint8_t *p, int mask, int value) {
    __m256i masked = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)p), _mm256_set1_epi8((char)mask));
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(masked, _mm256_set1_epi8((char)value))) != 0;
}
CBQ_FN void i_st_codes(uint8_t *to, I a, int bits) {
    __m256i v = _mm256_sllv_epi32(a, i_four_shifts(bits));
    v = _mm256_or_si256(v, _mm256_srli_epi64(v, 32));
    v = _mm256_or_si256(v, _mm256_srli_si256(v, 8));
    uint64_t low = (uint32_t)_mm256_extract_epi32(v, 0), high = (uint32_t)_mm256_extract_epi32(v, 4), all = low | high << 4 * bits;
    memcpy(to, &all, (size_t)bits);
}
CBQ_FN __m128 f_ld4_f64_odd(const uint8_t *p) {
    const __m256i beyond = _mm256_set1_epi64x(CBQ_BEYOND_F32);
    __m256i u = _mm256_loadu_si256((const __m256i *)(const void *)p);
    u = _mm256_or_si256(u, _mm256_add_epi64(_mm256_and_si256(u, beyond), beyond));
    return _mm256_cvtpd_ps(_mm256_castsi256_pd(_mm256_andnot_si256(beyond, u)));
}
CBQ_FN F f_ld_f64_odd(const uint8_t *p) { return _mm256_set_m128(f_ld4_f64_odd(p + 32), f_ld4_f64_odd(p)); }

typedef struct { __m256 low, high; } T;
CBQ_FN T t_load8(const float *p) { return (T){_mm256_loadu_ps(p), _mm256_setzero_ps()}; }
CBQ_FN T t_load16(const float *p) { return (T){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
CBQ_FN F t_pick8(T t, I i) { return _mm256_permutevar8x32_ps(t.low, i); }
CBQ_FN F t_pick16(T t, I i) {
    M high = _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)); /* bit 3 of the index to the sign, which is what blendv looks at */
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(t.low, i), _mm256_permutevar8x32_ps(t.high, i), high);
}

CBQ_FN __m256 f_gather2(const float *from, int64_t stride) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from)), _mm_loadu_ps(from + 4 * stride), 1);
}
CBQ_FN void f_transpose(const float *from, int64_t stride, float *to, int64_t next) {
    for (int half = 0; half < 2; half++, from += 4, to += 4 * next) {
        __m256 a = f_gather2(from, stride), b = f_gather2(from + stride, stride);
        __m256 c = f_gather2(from + 2 * stride, stride), d = f_gather2(from + 3 * stride, stride);
        __m256 ab = _mm256_unpacklo_ps(a, b), cd = _mm256_unpacklo_ps(c, d);
        _mm256_storeu_ps(to, _mm256_shuffle_ps(ab, cd, 0x44));
        _mm256_storeu_ps(to + next, _mm256_shuffle_ps(ab, cd, 0xee));
        ab = _mm256_unpackhi_ps(a, b), cd = _mm256_unpackhi_ps(c, d);
        _mm256_storeu_ps(to + 2 * next, _mm256_shuffle_ps(ab, cd, 0x44));
        _mm256_storeu_ps(to + 3 * next, _mm256_shuffle_ps(ab, cd, 0xee));
    }
}

CBQ_FN float f_largest(F a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
CBQ_FN F f_sum_each(const F v[8]) {
    __m256 low = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    __m256 high = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}
