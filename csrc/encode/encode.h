/* What an encoder gets and gives. Every encoder reproduces the bytes of ggml's ggml_quantize_chunk: each float operation
   is that of the reference, in its order. Lanes hold different groups, candidates or rows, never elements of one sum. */
#pragma once
#include <stddef.h>

#include "../kernels/kernels.h"

/* Rows of x, or a part of one. */
typedef struct {
    const float *x;          /* n blocks, one after the other, finite */
    const float *importance; /* of a whole row, or NULL; then x is whole rows */
    int64_t n, row_blocks;   /* blocks in all, and in a row */
    uint8_t *out;            /* n blocks */
} cbq_encode_args;

/* 0, or -1 where there is no memory. The first call for a job has n = 0: what tables an encoder needs, it makes there. */
typedef int cbq_encode_fn(const cbq_encode_args *args);

typedef struct {
    cbq_encode_fn *encode[CBQ_MAX_FORMATS]; /* by index of the format; NULL where there is none */
    /* The place of the first of n floats that is NaN or infinite, or -1. */
    int64_t (*find_nonfinite)(const float *x, int64_t n);
} cbq_encoders;

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif
extern const cbq_encoders cbq_encoders_scalar, cbq_encoders_avx2, cbq_encoders_avx512, cbq_encoders_neon;
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
