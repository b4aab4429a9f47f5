/* Dot products with NEON's sdot: four signed codes times four signed bytes, added to an int32. Codes below 128 are signed
   as they are; 8-bit ones lose their bias. */
#pragma once
#define CBQ_INT_M 8 /* 8 integer and 8 float sums, of 32 registers */
#define CBQ_DOT_BY_BITS 1
#define CBQ_WIDE_IS_SIGNED 1

CBQ_FN int8x16_t x4_s8(const uint8_t *x) { return vreinterpretq_s8_u32(vdupq_n_u32(cbq_u32(x, 1))); }

CBQ_FN D word_dot(D sum, W codes, const int8_t *x, int bits) {
    uint8x16_t c = w_to_u8(codes);
    if (bits == 8) c = veorq_u8(c, vdupq_n_u8(128));
    return vdotq_s32(sum, vreinterpretq_s8_u8(c), vld1q_s8(x));
}
CBQ_FN void quads_q8(I *sum, const uint8_t *codes, const uint8_t *x, int64_t x_stride, int m, int quads, int bits) {
#pragma GCC unroll 8
    for (int q = 0; q < quads; q++) {
        uint8x16_t c = vld1q_u8(codes + 16 * q);
        if (bits == 8) c = veorq_u8(c, vdupq_n_u8(128));
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) sum[i] = vdotq_s32(sum[i], vreinterpretq_s8_u8(c), x4_s8(x + i * x_stride + 4 * q));
    }
}
#include "neon_q16.h"
