/* Dot products with plain NEON: products of bytes in int16, added in pairs and then widened. Codes below 128 are signed as
   they are; 8-bit ones lose their bias. The sum of two products is at most 2 * 128 * 127 = 32 512. */
#pragma once
#define CBQ_INT_M 8
#define CBQ_DOT_BY_BITS 1
#define CBQ_WIDE_IS_SIGNED 1

CBQ_FN D word_dot(D sum, W codes, const int8_t *x, int bits) {
    uint8x16_t c = w_to_u8(codes);
    if (bits == 8) c = veorq_u8(c, vdupq_n_u8(128));
    int8x16_t s = vreinterpretq_s8_u8(c), xs = vld1q_s8(x);
    int16x8_t low = vmull_s8(vget_low_s8(s), vget_low_s8(xs)), high = vmull_s8(vget_high_s8(s), vget_high_s8(xs));
    return vpadalq_s16(sum, vpaddq_s16(low, high));
}
CBQ_FN void quads_q8(I *sum, const uint8_t *codes, const uint8_t *x, int64_t x_stride, int m, int quads, int bits) {
#pragma GCC unroll 8
    for (int q = 0; q < quads; q++) {
        uint8x16_t c = vld1q_u8(codes + 16 * q);
        if (bits == 8) c = veorq_u8(c, vdupq_n_u8(128));
        int8x8_t low = vreinterpret_s8_u8(vget_low_u8(c)), high = vreinterpret_s8_u8(vget_high_u8(c));
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) {
            int8x8_t xs = vreinterpret_s8_u32(vdup_n_u32(cbq_u32(x + i * x_stride + 4 * q, 1)));
            sum[i] = vpadalq_s16(sum[i], vpaddq_s16(vmull_s8(low, xs), vmull_s8(high, xs)));
        }
    }
}
#include "neon_q16.h"
