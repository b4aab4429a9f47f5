/* The scale byte of an mxfp4 block, as the reference has it: floor(log2f(largest)) - 2 + 127. */
#pragma once
#include "../../base.h"

/* Without a libm, whose last bit may differ. log2f rounds the last floats below a power of two, 2^n (1 - j / 2^24), up to n:
   those with j / ln 2 * 2^-24 below half a unit in the last place there. That unit is 2^(m - 23) for |n| from 2^m on (for n > 0
   just below it, for n < 0 just beyond it), so j < ln 2 * 2^m. Below the smallest scale the reference wraps around, even to the
   NaN of 255; the byte is 0 there. */
CBQ_FN uint8_t mxfp4_scale(float largest) {
    uint32_t bits = cbq_as_u32(largest);
    int next = (int)(bits >> 23) - 126; /* largest < 2^next */
    uint32_t size = (uint32_t)(next > 0 ? next - (next > 1) : -next), below = 0x800000 - (bits & 0x7fffff);
    int m = size ? 31 - __builtin_clz(size) : 0;
    int rounds_up = next != 0 && (float)below < 0.6931472f * (float)(1 << m);
    int byte = next - 1 + rounds_up + 125;
    return (uint8_t)(byte < 0 ? 0 : byte > 254 ? 254 : byte);
}
