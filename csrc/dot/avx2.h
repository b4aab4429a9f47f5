/* Dot products with AVX2: vpmaddubsw multiplies unsigned codes with signed bytes of x and adds pairs, in int16. A pair is
   at most 2 * 127 * (2^bits - 1), so a sum of so many pairs fits before it is widened:
     4 bits 8 (30 480)   5 bits 4 (31 496)   6 bits 2 (32 004)   7 bits 1 (32 258)
   Codes of 8 bits do not fit: the bias comes off, and their sign moves to x: |c| * (+-x) is at most 2 * 128 * 127 = 32 512. */
#pragma once
#define CBQ_INT_M 4 /* 4 sums of 16 bits, of 32 bits and of floats, of 16 registers */
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
        __m256i pairs[CBQ_INT_M];
#pragma GCC unroll 8
        for (int q = q0; q < q0 + run; q++) {
            I c = i_load(codes + 32 * q), magnitude = c;
            if (bits == 8) {
                c = _mm256_xor_si256(c, _mm256_set1_epi8(-128));
                magnitude = _mm256_abs_epi8(c);
            }
#pragma GCC unroll 4
            for (int i = 0; i < m; i++) {
                __m256i xs = i_set1((int32_t)cbq_u32(x + i * x_stride + 4 * q, 1));
                if (bits == 8) xs = _mm256_sign_epi8(xs, c);
                __m256i p = _mm256_maddubs_epi16(magnitude, xs);
                pairs[i] = q == q0 ? p : _mm256_add_epi16(pairs[i], p);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < m; i++) sum[i] = i_add(sum[i], _mm256_madd_epi16(pairs[i], _mm256_set1_epi16(1)));
    }
}
CBQ_FN void quads_q16(I *sum, const uint8_t *codes, const uint8_t *x, int64_t x_stride, int m, int quads, int bits) {
    (void)bits;
#pragma GCC unroll 8
    for (int q = 0; q < quads; q++) {
        I c = i_load(codes + 32 * q), mask = i_set1(0x00ff00ff);
        I even = _mm256_and_si256(c, mask), odd = _mm256_and_si256(_mm256_srli_epi32(c, 8), mask);
#pragma GCC unroll 4
        for (int i = 0; i < m; i++) {
            const uint8_t *xs = x + i * x_stride + 8 * q;
            sum[i] = i_add(sum[i], _mm256_madd_epi16(even, i_set1((int32_t)cbq_u32(xs, 1))));
            sum[i] = i_add(sum[i], _mm256_madd_epi16(odd, i_set1((int32_t)cbq_u32(xs + 4, 1))));
        }
    }
}
