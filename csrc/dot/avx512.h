/* Dot products with AVX-512 BW: vpmaddubsw multiplies unsigned codes with signed bytes of x and adds pairs, in int16: maddubs.h
   has the bounds. Codes of 8 bits do not fit: the bias comes off, and their sign moves to x. */
#pragma once
#include "panel_shape.h"
#define CBQ_INT_M 4 /* times two vectors: 8 sums of 16 bits, of 32 bits and of floats, of 32 registers */

CBQ_FN I pairs_of(I codes, I x) { return _mm512_maddubs_epi16(codes, x); }
CBQ_FN I add_pairs(I a, I b) { return _mm512_add_epi16(a, b); }
CBQ_FN I widen_pairs(I a) { return _mm512_madd_epi16(a, _mm512_set1_epi16(1)); }
CBQ_FN I dot_pairs(I sum, I codes, I x) { return _mm512_add_epi32(sum, _mm512_madd_epi16(codes, x)); }
typedef __mmask64 SIGNS; /* of codes: to be given to x */
CBQ_FN SIGNS signs_of(I codes) { return _mm512_movepi8_mask(codes); }
CBQ_FN I unbiased(I codes) { return _mm512_xor_si512(codes, _mm512_set1_epi8(-128)); }
CBQ_FN I magnitude(I codes) { return _mm512_abs_epi8(codes); }
CBQ_FN I with_signs(I x, SIGNS signs) { return _mm512_mask_sub_epi8(x, signs, _mm512_setzero_si512(), x); }
#include "maddubs.h"
