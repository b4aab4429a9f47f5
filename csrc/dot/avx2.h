/* Dot products with AVX2: vpmaddubsw multiplies unsigned codes with signed bytes of x and adds pairs, in int16: maddubs.h
   has the bounds. Codes of 8 bits do not fit: the bias comes off, and their sign moves to x. */
#pragma once
#include "panel_shape.h"
#define CBQ_INT_M 4 /* 4 sums of 16 bits, of 32 bits and of floats, of 16 registers */

CBQ_FN I pairs_of(I codes, I x) { return _mm256_maddubs_epi16(codes, x); }
CBQ_FN I add_pairs(I a, I b) { return _mm256_add_epi16(a, b); }
CBQ_FN I widen_pairs(I a) { return _mm256_madd_epi16(a, _mm256_set1_epi16(1)); }
CBQ_FN I dot_pairs(I sum, I codes, I x) { return _mm256_add_epi32(sum, _mm256_madd_epi16(codes, x)); }
typedef I SIGNS; /* of codes: to be given to x */
CBQ_FN SIGNS signs_of(I codes) { return codes; }
CBQ_FN I unbiased(I codes) { return _mm256_xor_si256(codes, _mm256_set1_epi8(-128)); }
CBQ_FN I magnitude(I codes) { return _mm256_abs_epi8(codes); }
CBQ_FN I with_signs(I x, SIGNS signs) { return _mm256_sign_epi8(x, signs); }
#include "maddubs.h"
