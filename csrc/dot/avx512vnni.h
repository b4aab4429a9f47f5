/* Dot products with AVX-512 VNNI: four unsigned codes times four signed bytes of x, or two and two 16-bit numbers, added to
   an int32 in one instruction. Nothing saturates. */
#pragma once
#define CBQ_INT_M 12 /* 12 integer and 12 float sums, of 32 registers */
#define CBQ_DOT_BY_BITS 0
#define CBQ_WIDE_IS_SIGNED 0

CBQ_FN D word_dot(D sum, W codes, const int8_t *x, int bits) {
    (void)bits;
    return _mm256_dpbusd_epi32(sum, (__m256i)codes, d_load((const int32_t *)(const void *)x));
}
CBQ_FN void quads_q8(I *sum, const uint8_t *codes, const uint8_t *x, int64_t x_stride, int m, int quads, int bits) {
    (void)bits;
#pragma GCC unroll 8
    for (int q = 0; q < quads; q++) {
        I c = i_load(codes + 64 * q);
#pragma GCC unroll 12
        for (int i = 0; i < m; i++) sum[i] = _mm512_dpbusd_epi32(sum[i], c, i_set1((int32_t)cbq_u32(x + i * x_stride + 4 * q, 1)));
    }
}
/* Codes 0 and 2 of each four, then 1 and 3, as 16-bit numbers. */
CBQ_FN void quads_q16(I *sum, const uint8_t *codes, const uint8_t *x, int64_t x_stride, int m, int quads, int bits) {
    (void)bits;
#pragma GCC unroll 8
    for (int q = 0; q < quads; q++) {
        I c = i_load(codes + 64 * q), mask = i_set1(0x00ff00ff);
        I even = _mm512_and_si512(c, mask), odd = _mm512_and_si512(_mm512_srli_epi32(c, 8), mask);
#pragma GCC unroll 12
        for (int i = 0; i < m; i++) {
            const uint8_t *xs = x + i * x_stride + 8 * q;
            sum[i] = _mm512_dpwssd_epi32(sum[i], even, i_set1((int32_t)cbq_u32(xs, 1)));
            sum[i] = _mm512_dpwssd_epi32(sum[i], odd, i_set1((int32_t)cbq_u32(xs + 4, 1)));
        }
    }
}
