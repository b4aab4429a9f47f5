/* Dot products with AVX-512 BW, as in avx2.h, which has the bounds. It has no sign instruction: the signs of the codes are
   a mask, under which x is subtracted from zero. */
#pragma once
#define CBQ_INT_M 8 /* 8 sums of 16 bits, of 32 bits and of floats, of 32 registers */
#define CBQ_DOT_BY_BITS 1
#define CBQ_WIDE_IS_SIGNED 1

CBQ_FN D word_dot(D sum, W codes, const int8_t *x, int bits) {
    __m256i c = (__m256i)codes, xs = d_load((const int32_t *)(const void *)x);
    if (bits == 8) {
        c = _mm256_xor_si256(c, _mm256_set1_epi8(-128));
        xs = _mm256_sign_epi8(xs, c);
        c = _mm256_abs_epi8(c);
    }
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(c, xs), _mm256_set1_epi16(1)));
}
CBQ_FN void quads_q8(I *sum, const uint8_t *codes, const uint8_t *x, int64_t x_stride, int m, int quads, int bits) {
    const int fit = bits <= 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1, run = fit < quads ? fit : quads;
#pragma GCC unroll 8
    for (int q0 = 0; q0 < quads; q0 += run) {
        __m512i pairs[CBQ_INT_M];
#pragma GCC unroll 8
        for (int q = q0; q < q0 + run; q++) {
            I c = i_load(codes + 64 * q);
            __mmask64 negative = 0;
            if (bits == 8) {
                c = _mm512_xor_si512(c, _mm512_set1_epi8(-128));
                negative = _mm512_movepi8_mask(c);
                c = _mm512_abs_epi8(c);
            }
#pragma GCC unroll 8
            for (int i = 0; i < m; i++) {
                I xs = i_set1((int32_t)cbq_u32(x + i * x_stride + 4 * q, 1));
                if (bits == 8) xs = _mm512_mask_sub_epi8(xs, negative, _mm512_setzero_si512(), xs);
                I p = _mm512_maddubs_epi16(c, xs);
                pairs[i] = q == q0 ? p : _mm512_add_epi16(pairs[i], p);
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) sum[i] = i_add(sum[i], _mm512_madd_epi16(pairs[i], _mm512_set1_epi16(1)));
    }
}
CBQ_FN void quads_q16(I *sum, const uint8_t *codes, const uint8_t *x, int64_t x_stride, int m, int quads, int bits) {
    (void)bits;
#pragma GCC unroll 8
    for (int q = 0; q < quads; q++) {
        I c = i_load(codes + 64 * q), mask = i_set1(0x00ff00ff);
        I even = _mm512_and_si512(c, mask), odd = _mm512_and_si512(_mm512_srli_epi32(c, 8), mask);
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) {
            const uint8_t *xs = x + i * x_stride + 8 * q;
            sum[i] = i_add(sum[i], _mm512_madd_epi16(even, i_set1((int32_t)cbq_u32(xs, 1))));
            sum[i] = i_add(sum[i], _mm512_madd_epi16(odd, i_set1((int32_t)cbq_u32(xs + 4, 1))));
        }
    }
}
