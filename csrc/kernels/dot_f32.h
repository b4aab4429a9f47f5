/* One row of weights times up to four vectors: decoded and multiplied in one pass, nothing goes through memory. */
#pragma once
#include "kernels.h"
#include "values.h"

typedef struct {
    const float *x;
    int64_t stride;  /* from one vector to the next */
    int m, sums;     /* sums: accumulators a vector, so that one multiply-add does not wait for the last */
    F sum[CBQ_DOT_M][4];
} dot_put;

/* Loops have constant bounds, not m, which is one only once all is inlined: too late for clang to unroll them, and for gcc to keep the
   sums in registers (with two vectors they were in memory: 36 G operations/s against 93). */
CBQ_FN void put_dot(void *context, int at, const F v[CBQ_VECTORS]) {
    dot_put *d = context;
    CBQ_UNROLL_ALL
    for (int k = 0; k < CBQ_VECTORS; k++) {
        int sum = (at / CBQ_LANES + k) % d->sums;
        CBQ_UNROLL_ALL
        for (int i = 0; i < CBQ_DOT_M; i++) {
            if (i >= d->m) continue;
            F x = f_ld_f32((const uint8_t *)(d->x + i * d->stride + at + CBQ_LANES * k));
            d->sum[i][sum] = f_fma(v[k], x, d->sum[i][sum]);
        }
    }
}

CBQ_FN void row_dot(const uint8_t *b, int64_t n, const float *x, int64_t stride, float *y, cbq_decoder f, int m) {
    dot_put d = {.x = x, .stride = stride, .m = m, .sums = m == 1 ? 4 : 2};
    CBQ_UNROLL_ALL
    for (int i = 0; i < CBQ_DOT_M; i++)
        CBQ_UNROLL_ALL
        for (int k = 0; k < 4; k++) d.sum[i][k] = f_set1(0);
    for (; n > 0; n--, b += f.bytes, d.x += f.elements) {
        cbq_prefetch((uintptr_t)b + CBQ_AHEAD, f.bytes);
        block_values(b, f, CBQ_F32, put_dot, &d);
    }
    CBQ_UNROLL_ALL
    for (int i = 0; i < CBQ_DOT_M; i++) {
        if (i >= m) continue;
        F pair = f_add(d.sum[i][0], d.sum[i][1]);
        y[i] = f_sum(m == 1 ? f_add(pair, f_add(d.sum[i][2], d.sum[i][3])) : pair);
    }
}

CBQ_FN void row_dots(const uint8_t *b, int64_t n, const float *x, int64_t stride, int m, float *y, cbq_decoder f) {
    switch (m) {
    case 1: row_dot(b, n, x, stride, y, f, 1); break;
    case 2: row_dot(b, n, x, stride, y, f, 2); break;
    case 3: row_dot(b, n, x, stride, y, f, 3); break;
    case 4: row_dot(b, n, x, stride, y, f, 4); break;
    }
}

#define CBQ_DOT_KERNEL(f, ...) \
    static void f##_dot_f32(const uint8_t *b, int64_t n, const float *x, int64_t stride, int m, float *y) { row_dots(b, n, x, stride, m, y, f##_decoder); }
CBQ_FORMATS(CBQ_DOT_KERNEL, CBQ_NOTHING)
#define CBQ_DOT_ROW(f, ...) f##_dot_f32,
