/* Products of a panel with rows of integers, on the dot products of a file of dot/. A step is 16 or 32 elements under one
   scale of the weights: its integer sums are exact, and become float at its end. Included after word/ and dot/; the
   functions that it defines know no format. */
#pragma once
#include "dot_int.h"

/* What a step does to the int32 sums of m rows, V vectors each: they get quads of codes times x. */
typedef void (*cbq_quads_fn)(I *sum, const uint8_t *codes, const uint8_t *x, int64_t x_stride, int m, int quads, int bits);

/* The constants of a product; x_bytes: of an element of x. */
typedef struct {
    int step, x_block, bits, has_min, x_bytes;
    cbq_quads_fn quads;
} int_kind;

/* Step s of m rows of x, from `row` on, to their float sums. */
CBQ_FN void int_step(const cbq_int_args *a, int64_t row, int64_t s, int m, int_kind kind, F *part) {
    const int32_t *starts = a->starts + row * a->step_stride + s;
    const float *sums = a->sums + row * a->step_stride + s;
    const float *x_scales = a->scales + row * a->scale_stride + s * kind.step / 32;
    const uint8_t *x = a->x + row * a->x_stride + s * kind.step * kind.x_bytes;
    I sum[CBQ_INT_M * V];
    CBQ_UNROLL_ALL
    for (int i = 0; i < m * V; i++) sum[i] = i_set1(starts[i / V * a->step_stride]);
    kind.quads(sum, a->panel.codes + s * kind.step * CBQ_PANEL_ROWS, x, a->x_stride, m, kind.step / 4, kind.bits);
    CBQ_UNROLL_ALL
    for (int v = 0; v < V; v++) {
        F scale = f_ld_f32((const uint8_t *)(a->panel.scales + s * CBQ_PANEL_ROWS + v * CBQ_LANES));
        CBQ_UNROLL_ALL
        for (int i = 0; i < m; i++) {
            F both = kind.x_block == 32 ? f_mul(scale, f_set1(x_scales[i * a->scale_stride])) : scale;
            part[i * V + v] = f_fma(i_to_f(sum[i * V + v]), both, part[i * V + v]);
        }
        if (!kind.has_min) continue;
        F min = f_ld_f32((const uint8_t *)(a->panel.mins + s * CBQ_PANEL_ROWS + v * CBQ_LANES));
        CBQ_UNROLL_ALL
        for (int i = 0; i < m; i++) part[i * V + v] = f_fnma(min, f_set1(sums[i * a->step_stride]), part[i * V + v]);
    }
}

/* Rows row .. row + m - 1 of x. A scale of x that covers more than a step is multiplied with once its steps are added up. */
CBQ_FN void int_rows(const cbq_int_args *a, int64_t row, int m, int_kind kind) {
    const int64_t steps = a->k / kind.step, in_block = kind.x_block == 32 ? steps : kind.x_block / kind.step;
    for (int64_t s0 = 0, block = 0; s0 < steps; s0 += in_block, block++) {
        const int64_t s1 = s0 + in_block < steps ? s0 + in_block : steps;
        F part[CBQ_INT_M * V];
        CBQ_UNROLL_ALL
        for (int i = 0; i < m * V; i++) part[i] = f_set1(0);
        for (int64_t s = s0; s < s1; s++) int_step(a, row, s, m, kind, part);
        CBQ_UNROLL_ALL
        for (int i = 0; i < m * V; i++) {
            float *y = a->y + (row + i / V) * a->y_stride + i % V * CBQ_LANES;
            F old = f_ld_f32((const uint8_t *)y);
            if (kind.x_block == 32) f_st_f32(y, f_add(part[i], old));
            else f_st_f32(y, f_fma(part[i], f_set1(a->scales[(row + i / V) * a->scale_stride + block]), old));
        }
    }
}

#define CBQ_INT_CASE(n) case n: if (n <= CBQ_INT_M) int_rows(a, i, n, kind); break;
/* In pieces of nearly equal size: seven rows are four and three, not six and one. */
CBQ_FN void int_all_rows(const cbq_int_args *a, int_kind kind) {
    int64_t pieces = (a->m + CBQ_INT_M - 1) / CBQ_INT_M;
    for (int64_t p = 0, i = 0; p < pieces; p++) {
        int64_t end = a->m * (p + 1) / pieces;
        switch ((int)(end - i)) {
            CBQ_INT_CASE(1) CBQ_INT_CASE(2) CBQ_INT_CASE(3) CBQ_INT_CASE(4) CBQ_INT_CASE(5) CBQ_INT_CASE(6) CBQ_INT_CASE(7) CBQ_INT_CASE(8)
        }
        i = end;
    }
}

CBQ_FN void int_kinds(const cbq_int_args *a, int x_block, int bits, int x_bytes, cbq_quads_fn quads) {
    switch (2 * (a->step == 32) + a->has_min) {
    case 0: int_all_rows(a, (int_kind){16, x_block, bits, 0, x_bytes, quads}); break;
    case 1: int_all_rows(a, (int_kind){16, x_block, bits, 1, x_bytes, quads}); break;
    case 2: int_all_rows(a, (int_kind){32, x_block, bits, 0, x_bytes, quads}); break;
    case 3: int_all_rows(a, (int_kind){32, x_block, bits, 1, x_bytes, quads}); break;
    }
}

CBQ_FN void int_bits(const cbq_int_args *a, int x_block) {
    switch (CBQ_DOT_BY_BITS ? a->bits : 8) {
    case 5: if (CBQ_DOT_BY_BITS) int_kinds(a, x_block, 5, 1, quads_q8); break;
    case 6: if (CBQ_DOT_BY_BITS) int_kinds(a, x_block, 6, 1, quads_q8); break;
    case 7: if (CBQ_DOT_BY_BITS) int_kinds(a, x_block, 7, 1, quads_q8); break;
    case 8: int_kinds(a, x_block, 8, 1, quads_q8); break;
    default: if (CBQ_DOT_BY_BITS) int_kinds(a, x_block, 4, 1, quads_q8); /* 4 and fewer */
    }
}
static void product_q8(const cbq_int_args *a) {
    if (a->x_block == 32) int_bits(a, 32);
    else int_bits(a, 256);
}
static void product_q16(const cbq_int_args *a) { int_kinds(a, 256, 8, 2, quads_q16); }

#define CBQ_INT_TABLE {.dot_q8 = {CBQ_FORMATS(CBQ_INT_DOT_ROW, CBQ_NO_ROW)[CBQ_PLANE_BYTES16] = plane_bytes16_dot_q8, plane_bytes32_dot_q8}, .dot_rows = CBQ_DOT_ROWS, .q8 = product_q8, .q16 = product_q16, .wide_is_signed = CBQ_WIDE_IS_SIGNED}
