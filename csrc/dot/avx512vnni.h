/* Dot products with AVX-512 VNNI: four unsigned codes times four signed bytes of x, or two and two 16-bit numbers, added to
   an int32 in one instruction. Nothing saturates. */
#pragma once
#include "panel_shape.h"
#define CBQ_INT_M 6 /* times two vectors: 12 integer and 12 float sums, of 32 registers */
#define CBQ_DOT_BY_BITS 0
#define CBQ_WIDE_IS_SIGNED 0

CBQ_FN I dot_bytes(I sum, I codes, I x) { return _mm512_dpbusd_epi32(sum, codes, x); }
CBQ_FN I dot_pairs(I sum, I codes, I x) { return _mm512_dpwssd_epi32(sum, codes, x); }
#include "quads.h"
