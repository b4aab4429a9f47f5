/* What attention offers: one table of functions for each instruction set, filled by isa/attention/NAME.c. */
#pragma once
#include "../kernels/kernels.h"

typedef struct {
    void (*exp)(const float *x, float *y, int64_t n); /* lanes/exp.h on an array; y may be x */

    /* top.h */
    int64_t (*scores_above)(const float *scores, int64_t n, float limit, int32_t base, int32_t *to);
    void (*scores_to_order)(int32_t *v, int64_t n);
    int64_t (*count_from)(const int32_t *v, int64_t n, int32_t least);
} cbq_attention;

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif
extern const cbq_attention cbq_attention_scalar, cbq_attention_avx2, cbq_attention_avx512, cbq_attention_neon;
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
