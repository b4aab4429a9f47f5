/* A row of weights, or as many as fill a vector with their words, times a few rows of x in 8-bit integers: decoded and
   multiplied in one pass. Included after a file of word/ and one of dot/. */
#pragma once
#include "codes.h"
#include "kernels.h"

/* ---- scales of blocks, one of each row, as the lanes of a word need them ---- */

typedef struct {
    F one;
    float groups[CBQ_DOT_ROWS * 16] __attribute__((aligned(64)));
} dot_scales;
CBQ_FN void take_scales(const uint8_t *const *b, cbq_decoder f, dot_scales *to) {
    float one[CBQ_DOT_ROWS];
    CBQ_UNROLL_ALL
    for (int r = 0; r < CBQ_DOT_ROWS; r++) code_scales(b[r], f, to->groups + 16 * r), one[r] = to->groups[16 * r];
    if (f.scales == CBQ_ONE) to->one = f_per_row(one);
    else if (CBQ_SCALES_IN_MEMORY) __asm__("" : "+m"(to->groups)); /* loads are cheaper than what gcc would make of it */
}
CBQ_FN F scales_at(const dot_scales *s, int at, cbq_decoder f) {
    return f.scales == CBQ_ONE ? s->one : f_pick_scales(s->groups, f.elements / f.group, at, f.group);
}

/* ---- what the mins of blocks take away: dmin * m times the sums of x ---- */

/* For each row of x and each of weights; what a format does not have is never touched. */
typedef struct {
    F of_groups[CBQ_DOT_Q8_M * CBQ_DOT_ROWS];
    float one[CBQ_DOT_Q8_M * CBQ_DOT_ROWS];
} dot_mins;
CBQ_FN void no_mins(dot_mins *mins, int m) {
    CBQ_UNROLL_ALL
    for (int i = 0; i < m * CBQ_DOT_ROWS; i++) mins->of_groups[i] = f_set1(0), mins->one[i] = 0;
}
/* A block of row r. */
CBQ_FN void add_mins(const uint8_t *b, cbq_decoder f, const cbq_int_dot_args *a, const float *sums, int m, int r, dot_mins *mins) {
    float s[16] __attribute__((aligned(64)));
    if (f.min == CBQ_MIN_GROUPS) group_mins(b, f, CBQ_F32, s);
    CBQ_UNROLL_ALL
    for (int i = 0; i < m; i++) {
        const float *row = sums + i * a->step_stride;
        const int at = i * CBQ_DOT_ROWS + r;
        if (f.min == CBQ_MIN_ONE) {
            mins->one[at] += f.dmin(b) * row[0];
            continue;
        }
        CBQ_UNROLL_ALL
        for (int g = 0; g < f.elements / f.group; g += CBQ_LANES)
            mins->of_groups[at] = f_fma(f_ld_f32((const uint8_t *)(s + g)), f_ld_f32((const uint8_t *)(row + g)), mins->of_groups[at]);
    }
}
CBQ_FN float all_mins(const dot_mins *mins, int at, cbq_decoder f) { return f.min == CBQ_MIN_ONE ? mins->one[at] : f_sum(mins->of_groups[at]); }

/* ---- rows ---- */

/* A word of each row, as biased codes side by side. */
CBQ_FN I join(W codes[CBQ_DOT_ROWS], cbq_decoder f, const uint8_t table[16]) {
    if (f.kind == CBQ_CODEBOOK) return p_lookup(codes, table);
    CBQ_UNROLL_ALL
    for (int r = 0; r < CBQ_DOT_ROWS; r++) codes[r] = biased(codes[r], f, table);
    return p_join(codes);
}

/* Block i of each row. */
CBQ_FN void block_dots(const uint8_t *const *rows, int64_t i, const cbq_int_dot_args *a, cbq_decoder f, const uint8_t table[16], int m,
                       F *total, dot_mins *mins) {
    const int x_block = cbq_x_block(f.elements), step = cbq_step(f.group);
    const int8_t *x = a->x + i * f.elements;
    const int32_t *starts = a->quad_starts + i * (f.elements / 4);
    const float *x_scales = a->scales + i * (f.elements / x_block);
    const uint8_t *b[CBQ_DOT_ROWS];
    dot_scales scales;
    CBQ_UNROLL_ALL
    for (int r = 0; r < CBQ_DOT_ROWS; r++) {
        b[r] = rows[r] + i * f.bytes;
        if (f.min) add_mins(b[r], f, a, a->scaled_sums + i * (f.elements / step), m, r, mins);
    }
    take_scales(b, f, &scales);
    F part[CBQ_DOT_Q8_M];
    CBQ_UNROLL_ALL
    for (int k = 0; k < m; k++) part[k] = f_set1(0);
    CBQ_UNROLL
    for (int run = 0; run < f.elements / 32; run++) {
        CBQ_UNROLL
        for (int o = 0; o < 32; o += CBQ_W) {
            const int at = 32 * run + o;
            W codes[CBQ_DOT_ROWS];
            CBQ_UNROLL_ALL
            for (int r = 0; r < CBQ_DOT_ROWS; r++) codes[r] = f.codes(b[r], (uint32_t)run, (uint32_t)o);
            I joined = join(codes, f, table);
            F scale = scales_at(&scales, at, f);
            CBQ_UNROLL_ALL
            for (int k = 0; k < m; k++) {
                I sum = dot_codes(p_same(starts + k * a->quad_stride + at / 4), joined, p_same(x + k * a->x_stride + at), f.bits);
                part[k] = f_fma(i_to_f(sum), scale, part[k]);
            }
        }
        if ((run + 1) % (x_block / 32)) continue;
        CBQ_UNROLL_ALL
        for (int k = 0; k < m; k++) {
            total[k] = f_fma(part[k], f_set1(x_scales[k * a->scale_stride + 32 * run / x_block]), total[k]);
            part[k] = f_set1(0);
        }
    }
}

CBQ_FN void row_dots_int(const uint8_t *const *rows, int64_t n, uintptr_t next, const cbq_int_dot_args *a, float *y, cbq_decoder f, int m) {
    uint8_t table[16];
    F total[CBQ_DOT_Q8_M];
    dot_mins mins;
    if (f.kind == CBQ_CODEBOOK) biased_table(f, table);
    CBQ_UNROLL_ALL
    for (int k = 0; k < m; k++) total[k] = f_set1(0);
    no_mins(&mins, m);
    for (int64_t i = 0; i < n; i++, next += CBQ_DOT_ROWS * f.bytes) {
        cbq_prefetch(next, CBQ_DOT_ROWS * f.bytes);
        block_dots(rows, i, a, f, table, m, total, &mins);
    }
    CBQ_UNROLL_ALL
    for (int k = 0; k < m; k++) {
        f_sum_rows(total[k], y + k * CBQ_DOT_ROWS);
        for (int r = 0; f.min && r < CBQ_DOT_ROWS; r++) y[k * CBQ_DOT_ROWS + r] -= all_mins(&mins, k * CBQ_DOT_ROWS + r, f);
    }
}

#define CBQ_INT_DOT_KERNEL(f, ...) \
    static void f##_dot_q8(const uint8_t *const *rows, int64_t n, uintptr_t next, const cbq_int_dot_args *a, float *y) { \
        if (a->m == 1) row_dots_int(rows, n, next, a, y, f##_decoder, 1); \
        else if (a->m == 2) row_dots_int(rows, n, next, a, y, f##_decoder, 2); \
        else if (a->m == 3) row_dots_int(rows, n, next, a, y, f##_decoder, 3); \
        else row_dots_int(rows, n, next, a, y, f##_decoder, 4); \
    }
CBQ_FORMATS(CBQ_INT_DOT_KERNEL, CBQ_NOTHING)
CBQ_INT_DOT_KERNEL(plane_bytes16)
CBQ_INT_DOT_KERNEL(plane_bytes32)
#define CBQ_INT_DOT_ROW(f, ...) f##_dot_q8,
