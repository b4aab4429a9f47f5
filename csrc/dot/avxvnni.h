/* Dot products with AVX-VNNI: four unsigned codes times four signed bytes of x, or two and two 16-bit numbers, added to an
   int32 in one instruction. Nothing saturates. */
#pragma once
#include "panel_shape.h"
#define CBQ_INT_M 6 /* 6 integer and 6 float sums, of 16 registers */
#define CBQ_DOT_BY_BITS 0
#define CBQ_WIDE_IS_SIGNED 0

CBQ_FN I dot_bytes(I sum, I codes, I x) { return _mm256_dpbusd_avx_epi32(sum, codes, x); }
CBQ_FN I dot_pairs(I sum, I codes, I x) { return _mm256_dpwssd_avx_epi32(sum, codes, x); }
#include "quads.h"
