/* Dot products with plain NEON: products of bytes in int16, added in pairs and then widened. Codes below 128 are signed as
   they are; 8-bit ones lose their bias. The sum of two products is at most 2 * 128 * 127 = 32 512. */
#pragma once
#include "panel_shape.h"
#include "neon_pairs.h"
#define CBQ_INT_M 4 /* times two vectors: 8 integer and 8 float sums, of 32 registers */

CBQ_FN I dot_signed(I sum, int8x16_t codes, int8x16_t x) {
    int16x8_t low = vmull_s8(vget_low_s8(codes), vget_low_s8(x)), high = vmull_s8(vget_high_s8(codes), vget_high_s8(x));
    return vpadalq_s16(sum, vpaddq_s16(low, high));
}
#include "neon_quads.h"
