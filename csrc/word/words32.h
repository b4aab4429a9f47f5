/* The part of the vocabulary that AVX2 and AVX-512 share: words of 32 codes in a 256-bit vector. */
#pragma once

CBQ_FN float w_f16(const uint8_t *p) { return w_f16_bits(cbq_u16(p, 2)); }

CBQ_FN W w_ld(const uint8_t *p, uint32_t o, int align) {
    (void)o; (void)align;
    return (W)_mm256_loadu_si256((const __m256i *)(const void *)p);
}
CBQ_FN __m128i w_load16(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
CBQ_FN W w_ld16(const uint8_t *p, uint32_t o, int align) {
    (void)o; (void)align;
    return (W)_mm256_broadcastsi128_si256(w_load16(p));
}
CBQ_FN W w_nib16(const uint8_t *p, uint32_t o, int align) {
    __m256i twice = _mm256_broadcastsi128_si256(w_load16(p)); /* a load; an insertion would take the port that shuffles need */
    (void)o; (void)align;
    return (W)_mm256_and_si256(_mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
}
/* Each 8 bytes twice, the second copy shifted down by a nibble. */
CBQ_FN W w_nib8(const uint8_t *p, uint32_t o, int align) {
    __m256i twice = _mm256_permute4x64_epi64(_mm256_castsi128_si256(w_load16(p)), 0x50);
    (void)o; (void)align;
    return (W)_mm256_and_si256(_mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 4, 0, 4)), _mm256_set1_epi8(15));
}
/* Each byte to two: shifted by a nibble, the high one is in the second. */
CBQ_FN W w_pairs(const uint8_t *p) {
    __m256i wide = _mm256_cvtepu8_epi16(w_load16(p));
    return (W)_mm256_and_si256(_mm256_or_si256(wide, _mm256_slli_epi16(wide, 4)), _mm256_set1_epi8(15));
}
/* Shifts are of dwords: what crosses from a neighbour is masked off, because the field stays inside its byte. */
CBQ_FN W w_bits(W a, uint32_t pos, int n, uint32_t to) {
    return (pos >= to ? a >> (pos - to) : a << (to - pos)) & CBQ_B(((1u << n) - 1) << to);
}

/* 0xff where bit i of the mask is 1 */
CBQ_FN W w_mask(uint32_t mask) {
    const __m256i byte_of = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit_of = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i m = _mm256_shuffle_epi8(_mm256_set1_epi32((int)mask), byte_of);
    return (W)_mm256_cmpeq_epi8(_mm256_and_si256(m, bit_of), bit_of);
}

CBQ_FN W w_add(W a, W b) { return (W)_mm256_add_epi8((__m256i)a, (__m256i)b); }
CBQ_FN W w_addall(W a, int c) { return (W)_mm256_add_epi8((__m256i)a, _mm256_set1_epi8((char)c)); }
CBQ_FN W w_suball(W a, int c) { return (W)_mm256_sub_epi8((__m256i)a, _mm256_set1_epi8((char)c)); }
CBQ_FN W w_cat16(W lo, W hi, uint32_t o) { (void)o; return (W)_mm256_blend_epi32((__m256i)lo, (__m256i)hi, 0xf0); }

CBQ_FN W w_lookup(W a, const uint8_t table[16]) {
    return (W)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(w_load16(table)), (__m256i)a);
}
CBQ_FN void w_store(W a, uint8_t *p) { _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)a); }

CBQ_FN W w_pow3(W a, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) a = w_add(a, w_add(a, a));
    return a;
}
/* 3a / 256 is (a >= 86) + (a >= 171); a >= c where max(a, c) == a */
CBQ_FN W w_digit3(W a) {
    __m256i v = (__m256i)a;
    __m256i one = _mm256_cmpeq_epi8(_mm256_max_epu8(v, _mm256_set1_epi8(86)), v);
    __m256i two = _mm256_cmpeq_epi8(_mm256_max_epu8(v, _mm256_set1_epi8((char)171)), v);
    return (W)_mm256_sub_epi8(_mm256_setzero_si256(), _mm256_add_epi8(one, two));
}

/* `expr` for each e in a row; statement expressions, because `e` must be a variable of the format's own expression. */
#define W_U64(e, o, expr) ({ uint64_t w_t[4]; (void)(o); _Pragma("GCC unroll 4") for (uint32_t e = 0; e < 4; e++) w_t[e] = (expr); w_from_u64(w_t); })
#define W_U32(e, o, expr) ({ uint32_t w_t[8]; (void)(o); _Pragma("GCC unroll 8") for (uint32_t e = 0; e < 8; e++) w_t[e] = (expr); w_from_u32(w_t); })
CBQ_FN W w_from_u64(const uint64_t t[4]) {
    return (W)_mm256_setr_epi64x((long long)t[0], (long long)t[1], (long long)t[2], (long long)t[3]);
}
CBQ_FN W w_from_u32(const uint32_t t[8]) {
    return (W)_mm256_setr_epi32((int)t[0], (int)t[1], (int)t[2], (int)t[3], (int)t[4], (int)t[5], (int)t[6], (int)t[7]);
}

/* The sums of four vectors, each in the order of f_sum. */
CBQ_FN void sum4_of_8(const __m256 v[4], float *y) {
    __m256 a = _mm256_add_ps(_mm256_permute2f128_ps(v[0], v[1], 0x20), _mm256_permute2f128_ps(v[0], v[1], 0x31));
    __m256 b = _mm256_add_ps(_mm256_permute2f128_ps(v[2], v[3], 0x20), _mm256_permute2f128_ps(v[2], v[3], 0x31));
    __m256 pairs = _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee)); /* of 0 and 2 | 1 and 3 */
    __m256 sums = _mm256_add_ps(_mm256_moveldup_ps(pairs), _mm256_movehdup_ps(pairs));
    _mm_storeu_ps(y, _mm_blend_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1), 0xa));
}
