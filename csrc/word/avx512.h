/* The word vocabulary, AVX-512 (F, BW, VL, DQ, VBMI): words are 32 codes in a 256-bit vector as in AVX2, floats go 16
   at a time. word/README.md says what the names mean. */
#pragma once
#include <immintrin.h>
#if !defined(CBQ_EMULATE) /* SIMDe has no BMI2 */
#define CBQ_DEPOSIT(x, mask) _pdep_u32(x, mask) /* not for AVX2: processors that have no AVX-512 may take 20 cycles for it */
#define CBQ_EXTRACT(x, mask) _pext_u64(x, mask)
#endif
#include "../base.h"

#define CBQ_W 32
#define CBQ_UNROLL CBQ_UNROLL_ALL /* runs of a block: shifts and fields become constants */
typedef uint32_t W __attribute__((vector_size(32)));

CBQ_FN float w_f16_bits(uint32_t bits) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128((int)bits))); }
CBQ_FN float w_f16_of2(const uint8_t *p, int i) { return _mm_cvtph_ps(_mm_cvtsi32_si128((int)cbq_u32(p, 2)))[i]; } /* one conversion for both */
#include "words32.h"

CBQ_FN W w_bit(uint32_t mask, uint32_t o) { (void)o; return (W)_mm256_maskz_set1_epi8((__mmask32)mask, 1); }
/* Adding what is not there yet is one masked instruction. */
CBQ_FN W w_with_bit(W a, uint32_t mask, uint32_t o, int to) {
    (void)o;
    return (W)_mm256_mask_add_epi8((__m256i)a, (__mmask32)mask, (__m256i)a, _mm256_set1_epi8((char)(1 << to)));
}
/* The rows of a whole block at once: 64 numbers are one vector, and of 256 rows a byte takes two permutations. Compilers do that once
   for all r of a block (CBQ_CODES_FIRST). On Zen 5, GB/s of float32 in cache, iq3_xxs and iq3_s: a gather for each run 22 and 31, loads
   38 and 33, this 49 and 45. */
#define CBQ_ROWS_BY_BYTES
CBQ_FN __m512i w_byte_of_rows(const uint8_t *bytes, int rows, __m512i low, __mmask64 high) {
    __m512i found[2];
    CBQ_UNROLL_ALL
    for (int k = 0; k < rows / 256; k++) {
        const uint8_t *at = bytes + 256 * k;
        __m512i first = _mm512_permutex2var_epi8(_mm512_loadu_si512(at), low, _mm512_loadu_si512(at + 64));
        __m512i second = _mm512_permutex2var_epi8(_mm512_loadu_si512(at + 128), low, _mm512_loadu_si512(at + 192));
        found[k] = _mm512_mask_blend_epi8(_mm512_movepi8_mask(low), first, second);
    }
    return rows == 256 ? found[0] : _mm512_mask_blend_epi8(high, found[0], found[1]);
}
/* Numbers are put in such an order that bytes of rows, joined within 128 bits, are whole runs. */
CBQ_FN W w_rows4(const uint8_t *bytes, int rows, const uint8_t *low, const uint8_t *high, uint32_t r) {
    const __m512i turn = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i number = _mm512_permutexvar_epi32(turn, _mm512_loadu_si512(low)), b[4];
    uint64_t ninth = 0;
    if (high) {
        memcpy(&ninth, high, 8);
        ninth = _mm512_movepi8_mask(_mm512_permutexvar_epi32(turn, _mm512_movm_epi8(ninth)));
    }
    CBQ_UNROLL_ALL
    for (int i = 0; i < 4; i++) b[i] = w_byte_of_rows(bytes + i * rows, rows, number, ninth);
    __m512i low_pair = r & 4 ? _mm512_unpackhi_epi8(b[0], b[1]) : _mm512_unpacklo_epi8(b[0], b[1]);
    __m512i high_pair = r & 4 ? _mm512_unpackhi_epi8(b[2], b[3]) : _mm512_unpacklo_epi8(b[2], b[3]);
    __m512i two_runs = r & 2 ? _mm512_unpackhi_epi16(low_pair, high_pair) : _mm512_unpacklo_epi16(low_pair, high_pair);
    return (W)(r & 1 ? _mm512_extracti64x4_epi64(two_runs, 1) : _mm512_castsi512_si256(two_runs));
}
#define W_ROWS4(grid, low, high, r, o) w_rows4(grid##_bytes[0], (int)(sizeof grid / sizeof *grid), low, high, r)
CBQ_FN W w_neg(W a, uint32_t mask, uint32_t o) {
    (void)o;
    return (W)_mm256_mask_sub_epi8((__m256i)a, (__mmask32)mask, _mm256_setzero_si256(), (__m256i)a);
}

/* ---- the float side ---- */
#define CBQ_LANES 16
#define CBQ_CODE_UNIT 1.0f
#define CBQ_LINEAR_BY_TABLE 0
#define CBQ_CODES_FIRST 1
typedef __m512 F;

#define CBQ_TILE_M 4 /* 24 sums, 4 + 1 operands, of 32 registers */
#define CBQ_TILE_N 6
/* Measured on Zen 5 (48 KiB of first-level cache), one thread, G operations/s with four vectors of 4096: q4_0 101 to 129, q8_0 90 to 137,
   of 14336 95 to 122 and 77 to 98. */
#define CBQ_DOT_X_BYTES (40 << 10)

CBQ_FN F f_set1(float x) { return _mm512_set1_ps(x); }
CBQ_FN F f_mul(F a, F b) { return _mm512_mul_ps(a, b); }
CBQ_FN F f_add(F a, F b) { return _mm512_add_ps(a, b); }
CBQ_FN F f_fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
CBQ_FN F f_fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
CBQ_FN void f_st_f32(float *y, F v) { _mm512_storeu_ps(y, v); }
CBQ_FN float f_sum(F v) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
CBQ_FN void f_sum4(const F v[4], float *y) {
    __m256 halves[4];
    CBQ_UNROLL_ALL
    for (int i = 0; i < 4; i++) halves[i] = _mm256_add_ps(_mm512_castps512_ps256(v[i]), _mm512_extractf32x8_ps(v[i], 1));
    sum4_of_8(halves, y);
}
CBQ_FN void w_to_f(W w, F f[2]) {
    f[0] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128((__m256i)w)));
    f[1] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256((__m256i)w, 1)));
}
/* The whole table is one register. */
CBQ_FN void w_table_to_f(W w, const float *table, F f[2]) {
    __m512 t = _mm512_loadu_ps(table);
    f[0] = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm256_castsi256_si128((__m256i)w)), t);
    f[1] = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm256_extracti128_si256((__m256i)w, 1)), t);
}
CBQ_FN void f_groups(float d, const uint32_t *s4, int n, float *out) {
    __m128i bytes = n > 8 ? _mm_setr_epi32((int)s4[0], (int)s4[1], (int)s4[2], (int)s4[3])
                          : _mm_cvtsi64_si128((long long)(s4[0] | (uint64_t)s4[1] << 32));
    _mm512_store_ps(out, _mm512_mul_ps(_mm512_set1_ps(d), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))));
}

/* ---- panels ---- */
#define CBQ_PANEL_VECTORS 2 /* a panel is 32 rows: each broadcast of x is used twice, or loads are the limit */
typedef __m512i I;
CBQ_FN I i_set1(int32_t x) { return _mm512_set1_epi32(x); }
CBQ_FN I i_and(I a, I b) { return _mm512_and_si512(a, b); }
CBQ_FN I i_shift_right8(I a) { return _mm512_srli_epi32(a, 8); }
CBQ_FN I i_add(I a, I b) { return _mm512_add_epi32(a, b); }
CBQ_FN I i_load(const uint8_t *p) { return _mm512_loadu_si512((const void *)p); }
CBQ_FN F i_to_f(I a) { return _mm512_cvtepi32_ps(a); }

/* ---- words of rows, side by side: two ---- */
CBQ_FN I p_join(const W codes[2]) { return _mm512_inserti64x4(_mm512_castsi256_si512((__m256i)codes[0]), (__m256i)codes[1], 1); }
CBQ_FN I p_lookup(const W codes[2], const uint8_t table[16]) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(w_load16(table)), p_join(codes));
}
CBQ_FN I p_same(const void *p) { return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)p)); }
/* A permutation: to write each scale as often as it is used and to read that again was half of the work of a block. */
#define CBQ_SCALES_IN_MEMORY 0
CBQ_FN F f_pick_scales(const float *s, int n, int at, int group) {
    typedef int32_t places __attribute__((vector_size(64)));
    const places quad = {0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28}, row = {0, 0, 0, 0, 0, 0, 0, 0, 16, 16, 16, 16, 16, 16, 16, 16};
    __m512 of_row[2];
    for (int i = 0; i < 2; i++, s += 16) {
        if (n > 4) of_row[i] = _mm512_loadu_ps(s);
        else of_row[i] = _mm512_castps128_ps512(_mm_setr_ps(s[0], s[1], n > 2 ? s[2] : 0, n > 2 ? s[3] : 0)); /* they were written one by one */
    }
    return _mm512_permutex2var_ps(of_row[0], (__m512i)((quad + at) / group + row), of_row[1]);
}
CBQ_FN F f_per_row(const float x[2]) { return _mm512_mask_broadcastss_ps(_mm512_set1_ps(x[0]), 0xff00, _mm_set_ss(x[1])); }
CBQ_FN void f_sum_rows(F v, float y[2]) {
    for (int i = 0; i < 2; i++) {
        __m256 half = i ? _mm512_extractf32x8_ps(v, 1) : _mm512_castps512_ps256(v);
        __m128 a = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
        a = _mm_add_ps(a, _mm_movehl_ps(a, a));
        y[i] = _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
    }
}

/* 16 bytes of rows r, r + 4, r + 8, r + 12 */
CBQ_FN __m512i p_gather4(const uint8_t *from, int64_t stride) {
    __m512i v = _mm512_castsi128_si512(w_load16(from));
    v = _mm512_inserti32x4(v, w_load16(from + 4 * stride), 1);
    v = _mm512_inserti32x4(v, w_load16(from + 8 * stride), 2);
    return _mm512_inserti32x4(v, w_load16(from + 12 * stride), 3);
}
/* 32 bytes of 16 rows to 8 vectors of a dword a row: each 128-bit part is a square of four rows, turned by itself. */
CBQ_FN void p_transpose(const uint8_t *from, int64_t stride, uint8_t *to) {
    const int next = 64 * CBQ_PANEL_VECTORS;
    for (int half = 0; half < 2; half++, from += 16, to += 4 * next) {
        __m512i a = p_gather4(from, stride), b = p_gather4(from + stride, stride);
        __m512i c = p_gather4(from + 2 * stride, stride), d = p_gather4(from + 3 * stride, stride);
        __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
        _mm512_storeu_si512((void *)to, _mm512_unpacklo_epi64(ab, cd));
        _mm512_storeu_si512((void *)(to + next), _mm512_unpackhi_epi64(ab, cd));
        ab = _mm512_unpackhi_epi32(a, b), cd = _mm512_unpackhi_epi32(c, d);
        _mm512_storeu_si512((void *)(to + 2 * next), _mm512_unpacklo_epi64(ab, cd));
        _mm512_storeu_si512((void *)(to + 3 * next), _mm512_unpackhi_epi64(ab, cd));
    }
}

CBQ_FN F f_ld_f32(const uint8_t *p) { return _mm512_loadu_ps((const void *)p); }
CBQ_FN F f_ld_f16(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p)); }
CBQ_FN F f_ld_bf16(const uint8_t *p) {
    __m512i u = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
}
CBQ_FN F f_ld_i8(const uint8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(w_load16(p))); }
CBQ_FN F f_ld_i16(const uint8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32((__m256i)w_ld(p, 0, 1))); }
CBQ_FN F f_ld_i32(const uint8_t *p) { return _mm512_cvtepi32_ps(_mm512_loadu_si512((const void *)p)); }
CBQ_FN F f_ld_f64(const uint8_t *p) {
    __m256 low = _mm512_cvtpd_ps(_mm512_loadu_pd((const void *)p)), high = _mm512_cvtpd_ps(_mm512_loadu_pd((const void *)(p + 64)));
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

/* bf16 in the high halves of 16 dwords: u + 0x7fff + (bit 16), with NaN kept apart. vcvtneps2bf16 would flush subnormals. */
CBQ_FN __m512i f_to_bf16(F f, int quiet) {
    __m512i u = _mm512_castps_si512(f), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    if (quiet) return rounded;
    return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(f, f, _CMP_UNORD_Q), u, _mm512_set1_epi32(0x400000));
}
/* Two vectors to 32 halves: those of the first go to the even places, then one permutation puts them in order. */
CBQ_FN __m512i f_pack_bf16(const F f[2], int quiet) {
    const __m512i order = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1,
                                           30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    __m512i even = _mm512_srli_epi32(f_to_bf16(f[0], quiet), 16), odd = f_to_bf16(f[1], quiet);
    __m512i mixed = _mm512_mask_blend_epi16(0xaaaaaaaa, even, odd);
    return _mm512_permutexvar_epi16(order, mixed);
}
CBQ_FN void f_store(uint8_t *y, const F f[2], int dtype) {
    if (dtype == CBQ_BF16 || dtype == CBQ_BF16_QUIET) {
        _mm512_storeu_si512((void *)y, f_pack_bf16(f, dtype == CBQ_BF16_QUIET));
        return;
    }
    for (int i = 0; i < 2; i++) {
        if (dtype == CBQ_F32) _mm512_storeu_ps((void *)(y + 64 * i), f[i]);
        else _mm256_storeu_si256((__m256i *)(void *)(y + 32 * i), _mm512_cvtps_ph(f[i], _MM_FROUND_TO_NEAREST_INT));
    }
}
CBQ_FN void f_stream(uint8_t *y, F f) { _mm512_stream_ps((void *)y, f); }
CBQ_FN void f_store_past(uint8_t *y, const F f[2], int dtype) {
    if (dtype == CBQ_F32) f_stream(y, f[0]), f_stream(y + 64, f[1]);
    else if (dtype == CBQ_F16) {
        __m256i low = _mm512_cvtps_ph(f[0], _MM_FROUND_TO_NEAREST_INT), high = _mm512_cvtps_ph(f[1], _MM_FROUND_TO_NEAREST_INT);
        _mm512_stream_si512((void *)y, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
    } else _mm512_stream_si512((void *)y, f_pack_bf16(f, dtype == CBQ_BF16_QUIET));
}
/* Measured on Sapphire Rapids (2 MiB of second-level cache): from 4 MiB up 17 to 19 GB/s against 8 with ordinary stores, with
   one thread and with two, although the last cache is larger than any of these outputs. */
#define CBQ_STREAM_THREADS 1024
#define CBQ_STREAM_FROM (4 << 20)
