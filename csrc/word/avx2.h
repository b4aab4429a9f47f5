/* The word vocabulary, AVX2 with F16C: a word is 32 codes in a 256-bit vector. word/README.md says what the names mean. */
#pragma once
#include "../base.h"
#include <immintrin.h>

#define CBQ_W 32
#define CBQ_UNROLL CBQ_UNROLL_ALL /* runs of a block: shifts and fields become constants */
typedef uint32_t W __attribute__((vector_size(32)));

CBQ_FN float w_f16_bits(uint32_t bits) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128((int)bits))); }
CBQ_FN float w_f16_of2(const uint8_t *p, int i) { return _mm_cvtph_ps(_mm_cvtsi32_si128((int)cbq_u32(p, 2)))[i]; } /* one conversion for both */
#include "words32.h"

CBQ_FN W w_bit(uint32_t mask, uint32_t o) { (void)o; return w_mask(mask) & CBQ_B(1); }
CBQ_FN W w_with_bit(W a, uint32_t mask, uint32_t o, int to) { return a | w_bit(mask, o) << to; }
#include "row_loads.h"
/* (a ^ m) - m where m is -1 */
CBQ_FN W w_neg(W a, uint32_t mask, uint32_t o) {
    W m = w_mask(mask);
    (void)o;
    return (W)_mm256_sub_epi8((__m256i)(a ^ m), (__m256i)m);
}

/* ---- the float side ---- */
#define CBQ_LANES 8
/* Codes go to the top byte of a dword, which is cheaper than sign extension: the value is 2^24 too large. */
#define CBQ_CODE_UNIT 0x1p-24f
#define CBQ_LINEAR_BY_TABLE 1 /* codes of up to 4 bits: two byte look-ups beat widening and converting */
#define CBQ_CODES_FIRST 0
typedef __m256 F;

#define CBQ_TILE_M 3 /* 12 sums, 3 + 1 operands: 16 registers */
#define CBQ_TILE_N 4
#define CBQ_DOT_X_BYTES 0 /* the second-level cache is fast enough: parts of 32 KiB cost 6 percent */

CBQ_FN F f_set1(float x) { return _mm256_set1_ps(x); }
CBQ_FN F f_mul(F a, F b) { return _mm256_mul_ps(a, b); }
CBQ_FN F f_add(F a, F b) { return _mm256_add_ps(a, b); }
CBQ_FN F f_fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
CBQ_FN F f_fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
CBQ_FN void f_st_f32(float *y, F v) { _mm256_storeu_ps(y, v); }
CBQ_FN float f_sum(F v) {
    __m128 a = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}

CBQ_FN void f_sum4(const F v[4], float *y) { sum4_of_8(v, y); }

/* Dwords 0 2 4 6 | 1 3 5 7: after two levels of unpacks inside the 128-bit halves, the codes are in order again. */
CBQ_FN __m256i w_interleave(W w) {
    return _mm256_permutevar8x32_epi32((__m256i)w, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}
CBQ_FN void w_to_f(W w, F f[4]) {
    __m256i zero = _mm256_setzero_si256(), p = w_interleave(w);
    __m256i low = _mm256_unpacklo_epi8(zero, p), high = _mm256_unpackhi_epi8(zero, p);
    f[0] = _mm256_cvtepi32_ps(_mm256_unpacklo_epi16(zero, low));
    f[1] = _mm256_cvtepi32_ps(_mm256_unpackhi_epi16(zero, low));
    f[2] = _mm256_cvtepi32_ps(_mm256_unpacklo_epi16(zero, high));
    f[3] = _mm256_cvtepi32_ps(_mm256_unpackhi_epi16(zero, high));
}
/* The table as bf16: one look-up gives the low bytes, one the high bytes. */
CBQ_FN void w_table_to_f(W w, const float *table, F f[4]) {
    __m256i zero = _mm256_setzero_si256();
    __m256i bf16 = _mm256_packus_epi32(_mm256_srli_epi32(_mm256_loadu_si256((const __m256i *)table), 16),
                                       _mm256_srli_epi32(_mm256_loadu_si256((const __m256i *)(table + 8)), 16));
    bf16 = _mm256_permute4x64_epi64(bf16, 0xd8);
    __m256i low_bytes = _mm256_and_si256(bf16, _mm256_set1_epi16(255)), high_bytes = _mm256_srli_epi16(bf16, 8);
    __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(low_bytes, high_bytes), 0xd8);
    __m256i p = w_interleave(w);
    __m256i l = _mm256_shuffle_epi8(_mm256_permute2x128_si256(bytes, bytes, 0x00), p);
    __m256i h = _mm256_shuffle_epi8(_mm256_permute2x128_si256(bytes, bytes, 0x11), p);
    __m256i a = _mm256_unpacklo_epi8(l, h), b = _mm256_unpackhi_epi8(l, h);
    f[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, a));
    f[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, a));
    f[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, b));
    f[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, b));
}
CBQ_FN void f_groups(float d, const uint32_t *s4, int n, float *out) {
    for (int g = 0; g < n; g += 8) {
        __m128i bytes = _mm_cvtsi64_si128((long long)(s4[g / 4] | (uint64_t)s4[g / 4 + 1] << 32));
        _mm256_store_ps(out + g, _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))));
    }
}

/* ---- panels ---- */
#define CBQ_PANEL_VECTORS 1 /* a panel is 8 rows: more would not leave registers for rows of x */
typedef __m256i I;
CBQ_FN I i_set1(int32_t x) { return _mm256_set1_epi32(x); }
CBQ_FN I i_and(I a, I b) { return _mm256_and_si256(a, b); }
CBQ_FN I i_shift_right8(I a) { return _mm256_srli_epi32(a, 8); }
CBQ_FN I i_add(I a, I b) { return _mm256_add_epi32(a, b); }
CBQ_FN I i_load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
CBQ_FN F i_to_f(I a) { return _mm256_cvtepi32_ps(a); }

/* ---- words of rows, side by side: one fills a vector ---- */
CBQ_FN I p_join(const W codes[1]) { return (I)codes[0]; }
CBQ_FN I p_lookup(const W codes[1], const uint8_t table[16]) { return (I)w_lookup(codes[0], table); }
CBQ_FN I p_same(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
#define CBQ_SCALES_IN_MEMORY 1
CBQ_FN F f_pick_scales(const float *s, int n, int at, int group) {
    (void)n;
    __m256 v = _mm256_broadcast_ss(s + at / group);
    return group == 16 ? _mm256_blend_ps(v, _mm256_broadcast_ss(s + at / group + 1), 0xf0) : v;
}
CBQ_FN F f_per_row(const float x[1]) { return _mm256_set1_ps(x[0]); }
CBQ_FN void f_sum_rows(F v, float y[1]) { y[0] = f_sum(v); }

/* 16 bytes of rows r and r + 4 */
CBQ_FN __m256i p_gather2(const uint8_t *from, int64_t stride) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(w_load16(from)), w_load16(from + 4 * stride), 1);
}
/* 32 bytes of 8 rows to 8 vectors of a dword a row: each 128-bit half is a square of four rows, turned by itself. */
CBQ_FN void p_transpose(const uint8_t *from, int64_t stride, uint8_t *to) {
    for (int half = 0; half < 2; half++, from += 16, to += 128) {
        __m256i a = p_gather2(from, stride), b = p_gather2(from + stride, stride);
        __m256i c = p_gather2(from + 2 * stride, stride), d = p_gather2(from + 3 * stride, stride);
        __m256i ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
        _mm256_storeu_si256((__m256i *)(void *)to, _mm256_unpacklo_epi64(ab, cd));
        _mm256_storeu_si256((__m256i *)(void *)(to + 32), _mm256_unpackhi_epi64(ab, cd));
        ab = _mm256_unpackhi_epi32(a, b), cd = _mm256_unpackhi_epi32(c, d);
        _mm256_storeu_si256((__m256i *)(void *)(to + 64), _mm256_unpacklo_epi64(ab, cd));
        _mm256_storeu_si256((__m256i *)(void *)(to + 96), _mm256_unpackhi_epi64(ab, cd));
    }
}

CBQ_FN F f_ld_f32(const uint8_t *p) { return _mm256_loadu_ps((const float *)(const void *)p); }
CBQ_FN F f_ld_f16(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)); }
CBQ_FN F f_ld_bf16(const uint8_t *p) {
    __m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
}
CBQ_FN F f_ld_i8(const uint8_t *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p))); }
CBQ_FN F f_ld_i16(const uint8_t *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(w_load16(p))); }
CBQ_FN F f_ld_i32(const uint8_t *p) { return _mm256_cvtepi32_ps((__m256i)w_ld(p, 0, 1)); }
CBQ_FN F f_ld_f64(const uint8_t *p) {
    const double *v = (const double *)(const void *)p;
    return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(v + 4)), _mm256_cvtpd_ps(_mm256_loadu_pd(v)));
}

/* bf16 bits of 8 floats in the low halves of 8 dwords: u + 0x7fff + (bit 16), with NaN kept apart */
CBQ_FN __m256i f_to_bf16(F f, int quiet) {
    __m256i u = _mm256_castps_si256(f), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    if (quiet) return _mm256_srli_epi32(rounded, 16);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, _mm256_or_si256(u, _mm256_set1_epi32(0x400000)), nan), 16);
}
/* 16 of them, in order */
CBQ_FN __m256i f_pack_bf16(F low, F high, int quiet) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(f_to_bf16(low, quiet), f_to_bf16(high, quiet)), 0xd8);
}
CBQ_FN void f_store(uint8_t *y, const F f[4], int dtype) {
    if (dtype == CBQ_F32) {
        for (int i = 0; i < 4; i++) _mm256_storeu_ps((float *)(void *)(y + 32 * i), f[i]);
    } else if (dtype == CBQ_F16) {
        for (int i = 0; i < 4; i++)
            _mm_storeu_si128((__m128i *)(void *)(y + 16 * i), _mm256_cvtps_ph(f[i], _MM_FROUND_TO_NEAREST_INT));
    } else {
        for (int i = 0; i < 2; i++)
            _mm256_storeu_si256((__m256i *)(void *)(y + 32 * i), f_pack_bf16(f[2 * i], f[2 * i + 1], dtype == CBQ_BF16_QUIET));
    }
}
CBQ_FN void f_stream(uint8_t *y, F f) { _mm256_stream_ps((float *)(void *)y, f); }
CBQ_FN void f_store_past(uint8_t *y, const F f[4], int dtype) {
    if (dtype == CBQ_F32) {
        for (int i = 0; i < 4; i++) f_stream(y + 32 * i, f[i]);
        return;
    }
    for (int i = 0; i < 2; i++) {
        const F low = f[2 * i], high = f[2 * i + 1];
        __m128i a = _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT), b = _mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT);
        __m256i packed = dtype == CBQ_F16 ? _mm256_set_m128i(b, a) : f_pack_bf16(low, high, dtype == CBQ_BF16_QUIET);
        _mm256_stream_si256((__m256i *)(void *)(y + 32 * i), packed);
    }
}
/* Measured on an AVX2 machine: one thread, well past the last cache; with two threads ordinary stores win. */
#define CBQ_STREAM_THREADS 1
#define CBQ_STREAM_FROM 0
