/* What attention offers: one table of functions for each instruction set, filled by isa/attention/NAME.c. */
#pragma once
#include "../kernels/kernels.h"

typedef struct {
    void (*exp)(const float *x, float *y, int64_t n); /* lanes/exp.h on an array; y may be x */
} cbq_attention;

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif
extern const cbq_attention cbq_attention_scalar, cbq_attention_avx2, cbq_attention_avx512, cbq_attention_neon;
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
