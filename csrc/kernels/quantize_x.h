/* Rows of x to integers, in loops that the compiler turns into vectors of each instruction set: the steps are integer
   operations and single float operations, so that every one gives the same bits. */
#pragma once
#include "kernels.h"

/* The largest magnitude's bits: they are ordered as the numbers are, with infinity and NaN above all. */
CBQ_FN uint32_t largest_magnitude(const float *x, int n) {
    uint32_t largest = 0;
    for (int i = 0; i < n; i++) {
        uint32_t magnitude = cbq_as_u32(x[i]) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

/* Nearest, ties to even: adding 1.5 * 2^23 leaves the integer in the low bits. */
CBQ_FN uint32_t rounded(float x) { return cbq_as_u32(x + 0x1.8p23f); }

CBQ_FN int quantize_x(const float *x, int64_t n, int block, void *q, float *scales, float limit, int bytes) {
    for (int64_t i = 0; i < n; i += block, x += block, scales++) {
        const int count = n - i < block ? (int)(n - i) : block;
        const uint32_t bits = largest_magnitude(x, count);
        const float largest = cbq_as_f32(bits);
        if (bits >= 0x7f800000u) return 0;
        /* Below 2^-112 the inverse could be infinite; such numbers count as zero. */
        const float inverse = largest < 0x1p-112f ? 0 : limit / largest;
        *scales = largest / limit;
        for (int e = 0; e < count; e++) {
            uint32_t v = rounded(x[e] * inverse);
            if (bytes == 1) ((int8_t *)q)[i + e] = (int8_t)v;
            else ((int16_t *)q)[i + e] = (int16_t)v;
        }
    }
    return 1;
}
static int quantize_q8(const float *x, int64_t n, int block, void *q, float *scales, int32_t *quad_sums) {
    const int8_t *v = q;
    if (!quantize_x(x, n, block, q, scales, 127, 1)) return 0;
    for (int64_t i = 0; i < n / 4; i++) quad_sums[i] = v[4 * i] + v[4 * i + 1] + v[4 * i + 2] + v[4 * i + 3];
    return 1;
}
static int quantize_q16(const float *x, int64_t n, int block, void *q, float *scales, int32_t *quad_sums) {
    const int16_t *v = q;
    if (!quantize_x(x, n, block, q, scales, 32767, 2)) return 0;
    for (int64_t i = 0; i < n / 4; i++) quad_sums[i] = v[4 * i] + v[4 * i + 1] + v[4 * i + 2] + v[4 * i + 3];
    return 1;
}
