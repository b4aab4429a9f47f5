/* mxfp4: the scale is the power of two of the largest magnitude, less two (the exponent of E2M1's largest value). An
   importance matrix changes nothing. */
#pragma once
#include "encode.h"
#include "shared/e2m1_codes.h"
#include "shared/largest.h"

/* floor(log2f(largest)) - 2 + 127 as the reference has it, without a libm, whose last bit may differ. log2f rounds the last
   floats below a power of two, 2^n (1 - j / 2^24), up to n: those with j / ln 2 * 2^-24 below half a unit in the last place
   there. That unit is 2^(m - 23) for |n| from 2^m on (for n > 0 just below it, for n < 0 just beyond it), so j < ln 2 * 2^m.
   Below the smallest scale the reference wraps around, even to the NaN of 255; the byte is 0 there. */
CBQ_FN uint8_t mxfp4_scale(float largest) {
    uint32_t bits = cbq_as_u32(largest);
    int next = (int)(bits >> 23) - 126; /* largest < 2^next */
    uint32_t size = (uint32_t)(next > 0 ? next - (next > 1) : -next), below = 0x800000 - (bits & 0x7fffff);
    int m = size ? 31 - __builtin_clz(size) : 0;
    int rounds_up = next != 0 && (float)below < 0.6931472f * (float)(1 << m);
    return (uint8_t)cbq_clamp(next - 1 + rounds_up + 125, 0, 254);
}

static int encode_mxfp4(const cbq_encode_args *a) {
    uint8_t codes[32];
    for (int64_t b = 0; b < a->n; b++) {
        const float *x = a->x + 32 * b;
        cbq_mxfp4_block *block = (cbq_mxfp4_block *)(a->out + 17 * b);
        block->x[0] = mxfp4_scale(largest_magnitude(x, 32));
        cbq_midpoints midpoints = e2m1_midpoints(cbq_mxfp4_d(block));
        I code[CBQ_OF_32];
        for (int i = 0; i < CBQ_OF_32; i++) code[i] = e2m1_codes(f_ld(x + i * CBQ_LANES), midpoints);
        i_st_32_u8(codes, code);
        cbq_mxfp4_pack(block, codes, block->x[0]);
    }
    return 0;
}
