/* Stands in for the compiler's <immintrin.h> in the emulated build of the tests: SIMDe's portable intrinsics (PyPI
   simde-py), and the few that its version 0.8.2 lacks. */
#pragma once
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>

static inline __m512i cbq_gap_cvtepi8_epi32(__m128i a) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_cvtepi8_epi32(a)), _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8)), 1);
}
static inline __m512i cbq_gap_cvtepu8_epi32(__m128i a) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_cvtepu8_epi32(a)), _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8)), 1);
}
#define _mm512_cvtepi8_epi32(a) cbq_gap_cvtepi8_epi32(a)
#define _mm512_cvtepu8_epi32(a) cbq_gap_cvtepu8_epi32(a)
static inline __m256i cbq_gap_maskz_set1_epi8(__mmask32 k, char a) { return _mm256_maskz_mov_epi8(k, _mm256_set1_epi8(a)); }
static inline __m256i cbq_gap_mask_sub_epi8(__m256i src, __mmask32 k, __m256i a, __m256i b) {
    return _mm256_mask_mov_epi8(src, k, _mm256_sub_epi8(a, b));
}
static inline __m256i cbq_gap_mask_add_epi8(__m256i src, __mmask32 k, __m256i a, __m256i b) {
    return _mm256_mask_mov_epi8(src, k, _mm256_add_epi8(a, b));
}
#define __mmask8 simde__mmask8
static inline __m256i cbq_gap_maskz_set1_epi32(__mmask8 k, int a) { return _mm256_maskz_mov_epi32(k, _mm256_set1_epi32(a)); }
#define _mm256_dpbusd_avx_epi32(sum, a, b) _mm256_dpbusd_epi32(sum, a, b)
#define _mm256_dpwssd_avx_epi32(sum, a, b) _mm256_dpwssd_epi32(sum, a, b)
#define _mm256_mask_add_epi8(src, k, a, b) cbq_gap_mask_add_epi8(src, k, a, b)
#define _mm256_maskz_set1_epi32(k, a) cbq_gap_maskz_set1_epi32(k, a)
#define _mm256_maskz_set1_epi8(k, a) cbq_gap_maskz_set1_epi8(k, a)
#define _mm256_mask_sub_epi8(src, k, a, b) cbq_gap_mask_sub_epi8(src, k, a, b)
static inline __m128i cbq_gap_maskz_loadu_epi32(unsigned k, const void *p) {
    int32_t v[4] = {0};
    for (int i = 0; i < 4; i++)
        if (k >> i & 1) v[i] = ((const struct { int32_t i; } __attribute__((packed)) *)p)[i].i;
    return _mm_loadu_si128((const __m128i *)(const void *)v);
}
#define _mm_maskz_loadu_epi32(k, p) cbq_gap_maskz_loadu_epi32(k, p)
static inline void cbq_gap_stream_si512(void *p, __m512i a) { _mm512_storeu_si512(p, a); }
#define _mm512_stream_si512(p, a) cbq_gap_stream_si512(p, a)
static inline __m128i cbq_gap_cvtepi32_epi8(__m512i a) {
    uint32_t from[16];
    uint8_t to[16];
    _mm512_storeu_si512(from, a);
    for (int i = 0; i < 16; i++) to[i] = (uint8_t)from[i];
    return _mm_loadu_si128((const __m128i *)(const void *)to);
}
/* SIMDe declares a function of this name that is nowhere. */
static inline __mmask32 cbq_gap_test_epi8_mask(__m256i a, __m256i b) {
    return _mm256_cmpneq_epi8_mask(_mm256_and_si256(a, b), _mm256_setzero_si256());
}
#define _mm256_test_epi8_mask(a, b) cbq_gap_test_epi8_mask(a, b)
#define _mm512_cvtepi32_epi8(a) cbq_gap_cvtepi32_epi8(a)
static inline __m256i cbq_gap_cvtepi32_epi16(__m512i a) {
    uint32_t from[16];
    uint16_t to[16];
    _mm512_storeu_si512(from, a);
    for (int i = 0; i < 16; i++) to[i] = (uint16_t)from[i];
    return _mm256_loadu_si256((const __m256i *)(const void *)to);
}
#define _mm512_cvtepi32_epi16(a) cbq_gap_cvtepi32_epi16(a)
#define _mm512_cvtps_ph(a, rounding) \
    _mm256_inserti128_si256(_mm256_castsi128_si256(_mm256_cvtps_ph(_mm512_castps512_ps256(a), rounding)), \
                            _mm256_cvtps_ph(_mm512_extractf32x8_ps(a, 1), rounding), 1)
#define _mm512_stream_ps(p, a) _mm512_storeu_ps(p, a)
static inline __m256 cbq_gap_cvtpd_ps(__m512d a) {
    return _mm256_set_m128(_mm256_cvtpd_ps(_mm512_extractf64x4_pd(a, 1)), _mm256_cvtpd_ps(_mm512_castpd512_pd256(a)));
}
#define _mm512_cvtpd_ps(a) cbq_gap_cvtpd_ps(a)
