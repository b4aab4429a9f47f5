/* Products of a panel with rows of integers, on the dot products of a file of dot/. A step is 16 or 32 elements under one
   scale of the weights: its integer sums are exact, and become float at its end. Included after word/ and dot/; the
   functions that it defines know no format. */
#pragma once
#include "dot_int.h"
#include "kernels.h"

/* What a step does to the int32 sums of m rows: sum[i] += 4 quads of codes times x[i]. */
typedef void (*cbq_quads_fn)(I *sum, const uint8_t *codes, const uint8_t *x, int64_t x_stride, int m, int quads, int bits);

/* Rows i0 .. i0 + m - 1 of x. One scale of x covers `x_block` elements. */
CBQ_FN void int_rows(const cbq_int_args *a, int64_t i0, int m, int step, int x_block, int bits, int has_min, int x_bytes, cbq_quads_fn quads) {
    const uint8_t *x = a->x + i0 * a->x_stride, *codes = a->panel.codes;
    const int32_t *starts = a->starts + i0 * a->step_stride;
    const float *sums = a->sums + i0 * a->step_stride;
    const int steps = (int)(a->k / step), in_block = x_block / step;
    for (int s0 = 0, block = 0; s0 < steps; s0 += in_block, block++) {
        const int s1 = s0 + in_block < steps ? s0 + in_block : steps;
        F part[CBQ_INT_M];
#pragma GCC unroll 12
        for (int i = 0; i < m; i++) part[i] = f_set1(0);
        for (int s = s0; s < s1; s++) {
            I sum[CBQ_INT_M];
            F scale = f_ld_f32((const uint8_t *)(a->panel.scales + s * CBQ_LANES));
#pragma GCC unroll 12
            for (int i = 0; i < m; i++) sum[i] = i_set1(starts[i * a->step_stride + s]);
            quads(sum, codes, x, a->x_stride, m, step / 4, bits);
            codes += step * CBQ_LANES;
            x += step * x_bytes;
#pragma GCC unroll 12
            for (int i = 0; i < m; i++) part[i] = f_fma(i_to_f(sum[i]), scale, part[i]);
            if (has_min) {
                F min = f_ld_f32((const uint8_t *)(a->panel.mins + s * CBQ_LANES));
#pragma GCC unroll 12
                for (int i = 0; i < m; i++) part[i] = f_fnma(min, f_set1(sums[i * a->step_stride + s]), part[i]);
            }
        }
#pragma GCC unroll 12
        for (int i = 0; i < m; i++) {
            float *y = a->y + (i0 + i) * a->y_stride;
            F scale = f_set1(a->scales[(i0 + i) * a->scale_stride + block]);
            f_st_f32(y, f_fma(part[i], scale, f_ld_f32((const uint8_t *)y)));
        }
    }
}

#define CBQ_INT_CASE(n) case n: if (n <= CBQ_INT_M) int_rows(a, i, n, step, x_block, bits, has_min, x_bytes, quads); break;
/* In pieces of nearly equal size: five rows are three and two, not four and one. */
CBQ_FN void int_all_rows(const cbq_int_args *a, int step, int x_block, int bits, int has_min, int x_bytes, cbq_quads_fn quads) {
    int64_t pieces = (a->m + CBQ_INT_M - 1) / CBQ_INT_M;
    for (int64_t p = 0, i = 0; p < pieces; p++) {
        int64_t end = a->m * (p + 1) / pieces;
        switch ((int)(end - i)) {
            CBQ_INT_CASE(1) CBQ_INT_CASE(2) CBQ_INT_CASE(3) CBQ_INT_CASE(4) CBQ_INT_CASE(5) CBQ_INT_CASE(6)
            CBQ_INT_CASE(7) CBQ_INT_CASE(8) CBQ_INT_CASE(9) CBQ_INT_CASE(10) CBQ_INT_CASE(11) CBQ_INT_CASE(12)
        }
        i = end;
    }
}

CBQ_FN void int_steps(const cbq_int_args *a, int x_block, int bits, int x_bytes, cbq_quads_fn quads) {
    if (a->step == 32) {
        if (a->has_min) int_all_rows(a, 32, x_block, bits, 1, x_bytes, quads);
        else int_all_rows(a, 32, x_block, bits, 0, x_bytes, quads);
    } else {
        if (a->has_min) int_all_rows(a, 16, x_block, bits, 1, x_bytes, quads);
        else int_all_rows(a, 16, x_block, bits, 0, x_bytes, quads);
    }
}
CBQ_FN void int_blocks(const cbq_int_args *a, int bits, int x_bytes, cbq_quads_fn quads) {
    if (a->x_block == 32) int_steps(a, 32, bits, x_bytes, quads);
    else int_steps(a, 256, bits, x_bytes, quads);
}

static void product_q8(const cbq_int_args *a) {
#if CBQ_DOT_BY_BITS
    if (a->bits <= 4) int_blocks(a, 4, 1, quads_q8);
    else if (a->bits == 5) int_blocks(a, 5, 1, quads_q8);
    else if (a->bits == 6) int_blocks(a, 6, 1, quads_q8);
    else if (a->bits == 7) int_blocks(a, 7, 1, quads_q8);
    else int_blocks(a, 8, 1, quads_q8);
#else
    int_blocks(a, 8, 1, quads_q8);
#endif
}
static void product_q16(const cbq_int_args *a) { int_steps(a, 256, 8, 2, quads_q16); }

#define CBQ_INT_TABLE {.dot_q8 = {CBQ_FORMATS(CBQ_INT_DOT_ROW, CBQ_NO_ROW)}, .q8 = product_q8, .q16 = product_q16, .wide_is_signed = CBQ_WIDE_IS_SIGNED}
