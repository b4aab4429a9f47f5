/* The 16-bit dot products of every NEON file. */
#pragma once
CBQ_FN I pair_products(uint16x8_t c, int16x8_t x) {
    int16x8_t s = vreinterpretq_s16_u16(c);
    return vpaddq_s32(vmull_s16(vget_low_s16(s), vget_low_s16(x)), vmull_s16(vget_high_s16(s), vget_high_s16(x)));
}
CBQ_FN void quads_q16(I *sum, const uint8_t *codes, const uint8_t *x, int64_t x_stride, int m, int quads, int bits) {
    (void)bits;
#pragma GCC unroll 8
    for (int q = 0; q < quads; q++) {
        uint16x8_t c = vreinterpretq_u16_u8(vld1q_u8(codes + 16 * q));
        uint16x8_t even = vandq_u16(c, vdupq_n_u16(255)), odd = vshrq_n_u16(c, 8);
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) {
            const uint8_t *xs = x + i * x_stride + 8 * q;
            sum[i] = i_add(sum[i], pair_products(even, vreinterpretq_s16_u32(vdupq_n_u32(cbq_u32(xs, 1)))));
            sum[i] = i_add(sum[i], pair_products(odd, vreinterpretq_s16_u32(vdupq_n_u32(cbq_u32(xs + 4, 1)))));
        }
    }
}
