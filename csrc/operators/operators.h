/* What the operators of cbquant.deepseek that work element by element offer: one table of functions for each instruction set, filled
   by isa/operators/NAME.c. Rows are contiguous and begin anywhere; nothing beyond them is touched. */
#pragma once
#include "../base.h"

/* Where memory is the limit there is a function for rows that all are f32, f16 or bf16 (CBQ_F32 ..) and one for any mixture. */
enum { CBQ_MIXED = 3, CBQ_N_MIXES };

/* y = a + b, n elements. */
typedef struct {
    const uint8_t *a, *b;
    uint8_t *y;
    int64_t n;
    int a_dtype, b_dtype, y_dtype;
} cbq_add_row;

typedef struct {
    void (*add[CBQ_N_MIXES])(const cbq_add_row *row);
} cbq_operators;

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif
extern const cbq_operators cbq_operators_scalar, cbq_operators_avx2, cbq_operators_avx512, cbq_operators_neon;
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
