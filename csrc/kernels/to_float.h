/* The consumer that writes floats: blocks of any format to f32, f16 or bf16, on any word vocabulary. Included by
   isa/NAME.c after a file of word/; the functions that it defines belong to that instruction set alone.

   value = (d * s) * (code - offset) - (dmin * m), in this order: it decides the sign of a zero. Every product is exact,
   so nothing else depends on the order, and no two multiplies and adds may be fused (-ffp-contract=off). */
#pragma once
#include "decoder.h"
#include "kernels.h"

#include "cbq_format_list.h"
CBQ_FORMATS(CBQ_DEFINE_DECODER, CBQ_NOTHING)

#define CBQ_VECTORS (CBQ_W / CBQ_LANES) /* float vectors in a word */

/* For bf16 every NaN becomes the default one, here where there are few: see CBQ_BF16_QUIET. Arithmetic makes no others. */
CBQ_FN float default_nan(float x, int dtype) { return dtype != CBQ_BF16 || x == x ? x : cbq_as_f32(0x7fc00000u); }

/* d * s of every group, with the unit of w_to_f taken out. Exact: d comes from an f16 (or is an eighth of one), so
   2^-24 more stays far above the smallest float32; formats with a table do not need it. */
CBQ_FN void group_scales(const uint8_t *b, cbq_decoder f, int dtype, float unit, float *s) {
    int n = f.elements / f.group;
    if (f.scales == CBQ_FLOATS) {
        for (int g = 0; g < n; g++) s[g] = f.s(b, (uint32_t)g);
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

CBQ_FN void block_to_float(const uint8_t *b, uint8_t *y, cbq_decoder f, int dtype) {
    float s[16] __attribute__((aligned(64))), m[16] __attribute__((aligned(64)));
    const float unit = f.table ? 1.0f : CBQ_CODE_UNIT;
    const int size = dtype == CBQ_F32 ? 4 : 2;
    F one_s = f_set1(0), one_m = f_set1(0);
    if (f.scales == CBQ_ONE) one_s = f_set1(default_nan(f.d(b), dtype) * unit);
    else group_scales(b, f, dtype, unit, s);
    if (f.min == CBQ_MIN_ONE) one_m = f_set1(default_nan(f.dmin(b), dtype));
    if (f.min == CBQ_MIN_GROUPS) group_mins(b, f, dtype, m);
    /* Keep them in memory: broadcasts from there use the load ports, which are idle; gcc would permute registers. */
    __asm__("" : "+m"(s), "+m"(m));
    CBQ_UNROLL
    for (int r = 0; r < f.elements / 32; r++) {
        CBQ_UNROLL
        for (int o = 0; o < 32; o += CBQ_W) {
            F v[CBQ_VECTORS];
            W codes = f.codes(b, (uint32_t)r, (uint32_t)o);
            if (f.table) w_table_to_f(codes, f.table, v);
            else w_to_f(f.offset ? w_suball(codes, f.offset) : codes, v);
#pragma GCC unroll 4
            for (int k = 0; k < CBQ_VECTORS; k++) {
                int g = (32 * r + o + CBQ_LANES * k) / f.group;
                v[k] = (f.scales == CBQ_ONE ? one_s : f_set1(s[g])) * v[k];
                if (f.min) v[k] = v[k] - (f.min == CBQ_MIN_ONE ? one_m : f_set1(m[g]));
            }
            f_store(y + (32 * r + o) * size, v, dtype == CBQ_BF16 ? CBQ_BF16_QUIET : dtype);
        }
    }
}

CBQ_FN void blocks_to_float(const uint8_t *b, uint8_t *y, int64_t n, cbq_decoder f, int dtype) {
    const int step = f.elements * (dtype == CBQ_F32 ? 4 : 2);
    for (int64_t i = 0; i < n; i++, b += f.bytes, y += step) block_to_float(b, y, f, dtype);
}

/* ---- plain types: one element a block ---- */

typedef float (*cbq_value_fn)(const uint8_t *p);
typedef F (*cbq_load_fn)(const uint8_t *p);

CBQ_FN F f_each(const uint8_t *p, cbq_value_fn value, int bytes) {
    float v[CBQ_LANES];
    F f;
    for (int i = 0; i < CBQ_LANES; i++) v[i] = value(p + i * bytes);
    memcpy(&f, v, sizeof f);
    return f;
}
CBQ_FN void plain_to_float(const uint8_t *p, uint8_t *y, int64_t n, cbq_value_fn value, cbq_load_fn load, int bytes, int dtype) {
    const int size = dtype == CBQ_F32 ? 4 : 2;
    int64_t i = 0;
    for (; i + CBQ_W <= n; i += CBQ_W) {
        F v[CBQ_VECTORS];
        for (int k = 0; k < CBQ_VECTORS; k++) {
            const uint8_t *from = p + (i + k * CBQ_LANES) * bytes;
            v[k] = load ? load(from) : f_each(from, value, bytes);
        }
        f_store(y + i * size, v, dtype);
    }
    for (; i < n; i++) {
        float v = value(p + i * bytes);
        uint16_t h = dtype == CBQ_F16 ? cbq_f32_to_f16(v) : cbq_f32_to_bf16(v);
        memcpy(y + i * size, dtype == CBQ_F32 ? (const void *)&v : (const void *)&h, (size_t)size);
    }
}

static void stream_copy(uint8_t *dst, const uint8_t *src, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += (int64_t)sizeof(F)) f_stream(dst + i, f_ld_f32(src + i));
}

/* ---- one function for each format and output ---- */

#define CBQ_BLOCK_KERNEL(f, out, OUT) \
    static void f##_to_##out(const uint8_t *b, uint8_t *y, int64_t n) { blocks_to_float(b, y, n, f##_decoder, OUT); }
#define CBQ_BLOCK_KERNELS(f, ...) CBQ_BLOCK_KERNEL(f, f32, CBQ_F32) CBQ_BLOCK_KERNEL(f, f16, CBQ_F16) CBQ_BLOCK_KERNEL(f, bf16, CBQ_BF16)

#define CBQ_LOAD_VECTOR(f) f_ld_##f
#define CBQ_LOAD_SCALAR(f) 0
#define CBQ_PLAIN_KERNEL(f, out, OUT, bytes, load) \
    static void f##_to_##out(const uint8_t *p, uint8_t *y, int64_t n) { plain_to_float(p, y, n, cbq_##f##_value, load, bytes, OUT); }
#define CBQ_PLAIN_KERNELS(f, tag, bytes, load, doc) \
    CBQ_PLAIN_KERNEL(f, f32, CBQ_F32, bytes, CBQ_LOAD_##load(f)) \
    CBQ_PLAIN_KERNEL(f, f16, CBQ_F16, bytes, CBQ_LOAD_##load(f)) \
    CBQ_PLAIN_KERNEL(f, bf16, CBQ_BF16, bytes, CBQ_LOAD_##load(f))

CBQ_FORMATS(CBQ_BLOCK_KERNELS, CBQ_PLAIN_KERNELS)

#define CBQ_TABLE_ROW(f, ...) {f##_to_f32, f##_to_f16, f##_to_bf16},
#define CBQ_KERNEL_TABLE {.to_float = {CBQ_FORMATS(CBQ_TABLE_ROW, CBQ_TABLE_ROW)}, .stream_copy = stream_copy, .stream_threads = CBQ_STREAM_THREADS, .stream_from = CBQ_STREAM_FROM}
