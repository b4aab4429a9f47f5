// The vocabulary of csrc/lanes for one float a thread, as far as its functions of e^x need it: they are the same here.
#pragma once
#include "base.h"

#include <math.h>

typedef float F;
typedef int32_t I;
typedef bool M;

CBQ_FN F f_set1(float x) { return x; }
CBQ_FN F f_zero() { return 0; }
CBQ_FN F f_add(F a, F b) { return a + b; }
CBQ_FN F f_sub(F a, F b) { return a - b; }
CBQ_FN F f_mul(F a, F b) { return a * b; }
CBQ_FN F f_div(F a, F b) { return a / b; }
CBQ_FN F f_sqrt(F a) { return sqrtf(a); }
CBQ_FN F f_fma(F a, F b, F c) { return fmaf(a, b, c); }
CBQ_FN F f_fnma(F a, F b, F c) { return fmaf(-a, b, c); }
CBQ_FN F f_neg(F a) { return -a; }
CBQ_FN F f_abs(F a) { return fabsf(a); }
CBQ_FN F f_min(F a, F b) { return a < b ? a : b; } // of a NaN both give the second operand
CBQ_FN F f_max(F a, F b) { return a > b ? a : b; }
CBQ_FN M m_lt(F a, F b) { return a < b; }
CBQ_FN F f_select(M m, F a, F b) { return m ? a : b; }
CBQ_FN I i_set1(int32_t x) { return x; }
CBQ_FN I i_of_bits(F a) { return (I)cbq_as_u32(a); }
CBQ_FN F f_of_bits(I a) { return cbq_as_f32((uint32_t)a); }
CBQ_FN I i_add(I a, I b) { return (I)((uint32_t)a + (uint32_t)b); }
CBQ_FN I i_sub(I a, I b) { return (I)((uint32_t)a - (uint32_t)b); }
CBQ_FN I i_and(I a, I b) { return a & b; }
CBQ_FN I i_shr(I a, int n) { return (I)((uint32_t)a >> n); }
CBQ_FN I i_shl(I a, int n) { return (I)((uint32_t)a << n); }

#include "lanes/exp.h"
#include "lanes/log.h"
