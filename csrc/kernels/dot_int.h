/* One row of weights times up to three rows of x in 8-bit integers: decoded and multiplied in one pass. Included after a
   file of word/ and one of dot/. */
#pragma once
#include "codes.h"
#include "kernels.h"

/* The scales of a block, one for each four codes; where there is one, it is in one[0]. */
CBQ_FN void spread_scales(const uint8_t *b, cbq_decoder f, float *one, float *spread) {
    float s[16] __attribute__((aligned(64)));
    const float unit = 1.0f / (float)f.multiple;
    if (f.scales == CBQ_ONE) {
        one[0] = f.d(b) * unit;
        return;
    }
    group_scales(b, f, CBQ_F32, unit, s);
    if (f.scales == CBQ_GROUPS) f_spread(s, f.elements / f.group, spread);
    else for (int i = 0; i < f.elements / 4; i++) spread[i] = s[4 * i / f.group] * unit;
}

/* The part of the block's mins: dmin * m times the sums of x. */
CBQ_FN float min_part(const float *m, int n, const float *scaled_sums) {
    F sum = f_set1(0);
    for (int g = 0; g < n; g += CBQ_LANES) sum = f_fma(f_ld_f32((const uint8_t *)(m + g)), f_ld_f32((const uint8_t *)(scaled_sums + g)), sum);
    return f_sum(sum);
}

CBQ_FN void row_dot_int(const uint8_t *b, int64_t n, const cbq_int_dot_args *a, float *y, cbq_decoder f, int m) {
    const int x_block = f.elements == 256 ? 256 : 32, step = f.group < 32 ? f.group : 32;
    const int8_t *x = a->x;
    const int32_t *starts = a->quad_starts;
    const float *sums = a->scaled_sums, *scales = a->scales;
    uint8_t table[16];
    E total[CBQ_INT_DOT_M];
    float mins[CBQ_INT_DOT_M] = {0, 0, 0};
    if (f.kind == CBQ_CODEBOOK) biased_table(f, table);
    CBQ_UNROLL_ALL
    for (int i = 0; i < m; i++) total[i] = e_set1(0);
    for (; n > 0; n--, b += f.bytes, x += f.elements, starts += f.elements / 4, sums += f.elements / step, scales += f.elements / x_block) {
        float one = 0, spread[64] __attribute__((aligned(64))), group_min[16] __attribute__((aligned(64)));
        cbq_prefetch((uintptr_t)b + CBQ_AHEAD, f.bytes);
        spread_scales(b, f, &one, spread);
        if (f.min == CBQ_MIN_GROUPS) group_mins(b, f, CBQ_F32, group_min);
        if (f.min)
            CBQ_UNROLL_ALL
            for (int i = 0; i < m; i++) {
                const float *row = sums + i * a->step_stride;
                mins[i] += f.min == CBQ_MIN_ONE ? f.dmin(b) * row[0] : min_part(group_min, f.elements / f.group, row);
            }
        __asm__("" : "+m"(spread)); /* loads are cheaper than what gcc would make of it */
        E part[CBQ_INT_DOT_M];
        CBQ_UNROLL_ALL
        for (int i = 0; i < m; i++) part[i] = e_set1(0);
        CBQ_UNROLL
        for (int r = 0; r < f.elements / 32; r++) {
            CBQ_UNROLL
            for (int o = 0; o < 32; o += CBQ_W) {
                const int at = 32 * r + o;
                W codes = biased_codes(b, f, table, r, o);
                E scale = f.scales == CBQ_ONE ? e_set1(one) : e_load(spread + at / 4);
                CBQ_UNROLL_ALL
                for (int i = 0; i < m; i++) {
                    D sum = word_dot(d_load(starts + i * a->quad_stride + at / 4), codes, x + i * a->x_stride + at, f.bits);
                    part[i] = e_fma(d_to_e(sum), scale, part[i]);
                }
            }
            if ((r + 1) % (x_block / 32)) continue;
            CBQ_UNROLL_ALL
            for (int i = 0; i < m; i++) {
                total[i] = e_fma(part[i], e_set1(scales[i * a->scale_stride + 32 * r / x_block]), total[i]);
                part[i] = e_set1(0);
            }
        }
    }
    CBQ_UNROLL_ALL
    for (int i = 0; i < m; i++) y[i] = e_sum(total[i]) - mins[i];
}

CBQ_FN void row_dots_int(const uint8_t *b, int64_t n, const cbq_int_dot_args *a, float *y, cbq_decoder f) {
    switch (a->m) {
    case 1: row_dot_int(b, n, a, y, f, 1); break;
    case 2: row_dot_int(b, n, a, y, f, 2); break;
    case 3: row_dot_int(b, n, a, y, f, 3); break;
    }
}

#define CBQ_INT_DOT_KERNEL(f, ...) \
    static void f##_dot_q8(const uint8_t *b, int64_t n, const cbq_int_dot_args *a, float *y) { row_dots_int(b, n, a, y, f##_decoder); }
CBQ_FORMATS(CBQ_INT_DOT_KERNEL, CBQ_NOTHING)
#define CBQ_INT_DOT_ROW(f, ...) f##_dot_q8,
