/* The values of a block in float vectors, on any word vocabulary: what every consumer of floats begins with. Included
   after a file of word/; the functions that it defines belong to that instruction set alone.

   value = (d * s) * (code - offset) - (dmin * m), in this order: it decides the sign of a zero. Every product is exact,
   so nothing else depends on the order, and no two multiplies and adds may be fused (-ffp-contract=off). */
#pragma once
#include "decoder.h"

/* For bf16 every NaN becomes the default one, here where there are few: see CBQ_BF16_QUIET. Arithmetic makes no others. */
CBQ_FN float default_nan(float x, int dtype) { return dtype != CBQ_BF16 || x == x ? x : cbq_as_f32(0x7fc00000u); }

/* d * s of every group, with the unit of w_to_f taken out. Exact: d comes from an f16 (or is an eighth of one), so
   2^-24 more stays far above the smallest float32; formats with a table do not need it. */
CBQ_FN void group_scales(const uint8_t *b, cbq_decoder f, int dtype, float unit, float *s) {
    int n = f.elements / f.group;
    if (f.scales == CBQ_FLOATS) {
        for (int g = 0; g < n; g++) s[g] = f.s(b, (uint32_t)g) * unit;
    } else {
        uint32_t s4[4] = {0, 0, 0, 0};
        for (int k = 0; k < n / 4; k++) s4[k] = f.s4(b, (uint32_t)k);
        f_groups(default_nan(f.d(b), dtype) * unit, s4, n, s);
    }
}
CBQ_FN void group_mins(const uint8_t *b, cbq_decoder f, int dtype, float *m) {
    int n = f.elements / f.group;
    uint32_t m4[4] = {0, 0, 0, 0};
    for (int k = 0; k < n / 4; k++) m4[k] = f.m4(b, (uint32_t)k);
    f_groups(default_nan(f.dmin(b), dtype), m4, n, m);
}

/* What the words of a grid have in common is found once if nothing is written in between: for all a compiler knows, what is written
   may be the block. */
CBQ_FN int codes_first(cbq_decoder f) { return CBQ_CODES_FIRST && f.kind == CBQ_SIGNED && f.elements == 256; }
CBQ_FN void first_codes(const uint8_t *b, cbq_decoder f, W all[256 / CBQ_W]) {
    if (!codes_first(f)) return;
    CBQ_UNROLL
    for (int i = 0; i < 256 / CBQ_W; i++) all[i] = f.codes(b, (uint32_t)(i * CBQ_W / 32), (uint32_t)(i * CBQ_W % 32));
}
CBQ_FN W codes_at(const uint8_t *b, cbq_decoder f, const W all[256 / CBQ_W], int r, int o) {
    return codes_first(f) ? all[(32 * r + o) / CBQ_W] : f.codes(b, (uint32_t)r, (uint32_t)o);
}

/* What becomes of a word's worth of values, the first of which is number `at` of its block. */
typedef void cbq_put_fn(void *context, int at, const F v[CBQ_VECTORS]);

CBQ_FN void block_values(const uint8_t *b, cbq_decoder f, int dtype, cbq_put_fn *put, void *context) {
    float s[16] __attribute__((aligned(64))), m[16] __attribute__((aligned(64)));
    const float unit = f.table ? 1.0f : CBQ_CODE_UNIT;
    F one_s = f_set1(0), one_m = f_set1(0);
    if (f.scales == CBQ_ONE) one_s = f_set1(default_nan(f.d(b), dtype) * unit);
    else group_scales(b, f, dtype, unit, s);
    if (f.min == CBQ_MIN_ONE) one_m = f_set1(default_nan(f.dmin(b), dtype));
    if (f.min == CBQ_MIN_GROUPS) group_mins(b, f, dtype, m);
    /* Keep them in memory: broadcasts from there use the load ports, which are idle; gcc would permute registers. */
    __asm__("" : "+m"(s), "+m"(m));
    W all[256 / CBQ_W];
    first_codes(b, f, all);
    CBQ_UNROLL
    for (int r = 0; r < f.elements / 32; r++) {
        CBQ_UNROLL
        for (int o = 0; o < 32; o += CBQ_W) {
            F v[CBQ_VECTORS];
            W codes = codes_at(b, f, all, r, o);
            if (f.table) w_table_to_f(codes, f.table, v);
            else w_to_f(f.offset ? w_suball(codes, f.offset) : codes, v);
            CBQ_UNROLL_ALL
            for (int k = 0; k < CBQ_VECTORS; k++) {
                int g = (32 * r + o + CBQ_LANES * k) / f.group;
                v[k] = (f.scales == CBQ_ONE ? one_s : f_set1(s[g])) * v[k];
                if (f.min) v[k] = v[k] - (f.min == CBQ_MIN_ONE ? one_m : f_set1(m[g]));
            }
            put(context, 32 * r + o, v);
        }
    }
}
