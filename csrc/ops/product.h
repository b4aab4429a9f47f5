/* What the products in floats and in integers share. */
#pragma once
#include "check.h"
#include "matmul.h"

static inline int64_t cbq_rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/* The plain format of a dtype. */
static inline int cbq_plain_format(int dtype) { return cbq_find_format(dtype == CBQ_F32 ? "f32" : dtype == CBQ_F16 ? "f16" : "bf16"); }

/* n results of row i of x, beginning at column j, to out. `f32` is the index of that plain format. */
static inline void cbq_put_row(const cbq_matmul_args *a, int f32, const float *y, int64_t i, int64_t j, int64_t n) {
    uint8_t *to = a->out.data + (i * a->n + j) * (a->out_dtype == CBQ_F32 ? 4 : 2);
    a->level->kernels->to_float[f32][a->out_dtype]((const uint8_t *)y, to, n);
}
