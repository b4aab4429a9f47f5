/* Dot products with NEON's sdot: four signed codes times four signed bytes, added to an int32. Codes below 128 are signed
   as they are; 8-bit ones lose their bias. */
#pragma once
#include "panel_shape.h"
#include "neon_pairs.h"
#define CBQ_INT_M 4 /* times two vectors: 8 integer and 8 float sums, of 32 registers */

CBQ_FN I dot_signed(I sum, int8x16_t codes, int8x16_t x) { return vdotq_s32(sum, codes, x); }
#include "neon_quads.h"
