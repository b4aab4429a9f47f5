/* Dot products with NEON's sdot: four signed codes times four signed bytes, added to an int32. Codes below 128 are signed
   as they are; 8-bit ones lose their bias. */
#pragma once
#include "panel_shape.h"
#include "neon_pairs.h"
#define CBQ_INT_M 4 /* times two vectors: 8 integer and 8 float sums, of 32 registers */

/* In assembly, for clang's header hides the intrinsic unless the whole file may use it. */
CBQ_FN I dot_signed(I sum, int8x16_t codes, int8x16_t x) {
#if defined(CBQ_EMULATE)
    return vdotq_s32(sum, codes, x);
#else
    __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(codes), "w"(x));
    return sum;
#endif
}
#include "neon_quads.h"
