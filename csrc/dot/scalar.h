/* Dot products in plain C: what the others are compared with. */
#pragma once
#include "panel_shape.h"
#define CBQ_INT_M 4
#define CBQ_DOT_BY_BITS 0
#define CBQ_WIDE_IS_SIGNED 0

CBQ_FN I dot_codes(I sum, I codes, I x, int bits) {
    (void)bits;
    for (int lane = 0; lane < 4; lane++)
        for (int e = 0; e < 32; e += 8) sum[lane] += ((uint32_t)codes[lane] >> e & 255) * (uint32_t)(int8_t)((uint32_t)x[lane] >> e);
    return sum;
}

CBQ_FN void quads_q8(I *sum, const uint8_t *codes, const uint8_t *x, int64_t x_stride, int m, int quads, int bits) {
    (void)bits;
    for (int q = 0; q < quads; q++)
        for (int i = 0; i < m; i++)
            for (int lane = 0; lane < 4; lane++)
                for (int e = 0; e < 4; e++) sum[i][lane] += codes[16 * q + 4 * lane + e] * (int8_t)x[i * x_stride + 4 * q + e];
}
CBQ_FN void quads_q16(I *sum, const uint8_t *codes, const uint8_t *x, int64_t x_stride, int m, int quads, int bits) {
    static const int place[4] = {0, 2, 1, 3};
    (void)bits;
    for (int q = 0; q < quads; q++)
        for (int i = 0; i < m; i++)
            for (int e = 0; e < 4; e++) {
                int16_t v;
                memcpy(&v, x + i * x_stride + 8 * q + 2 * place[e], 2);
                for (int lane = 0; lane < 4; lane++) sum[i][lane] += codes[16 * q + 4 * lane + e] * v;
            }
}
