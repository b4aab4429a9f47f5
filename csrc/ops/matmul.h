/* Multiply with blocks: y[m, n] = x[m, k] * w[n, k]^T. */
#pragma once
#include "../dispatch.h"
#include "../registry.h"
#include "../view.h"

typedef enum { CBQ_PRECISION_F32, CBQ_PRECISION_BF16, CBQ_PRECISION_Q8, CBQ_PRECISION_Q16 } cbq_precision;

typedef struct {
    int format;       /* of w: index in cbq_formats */
    int precision;
    int dtype, out_dtype; /* of x and of y: CBQ_F32, CBQ_F16, CBQ_BF16 */
    int threads;      /* 1 and up, or 0 for the default */
    int64_t m, n, k;
    const cbq_level *level;
    cbq_view x, w;
    cbq_out out;
} cbq_matmul_args;

cbq_code cbq_matmul(const cbq_matmul_args *args, cbq_status *st);

/* Whether a product of that size is worth more than one thread. */
int cbq_matmul_is_large(int64_t m, int64_t n, int64_t k);
