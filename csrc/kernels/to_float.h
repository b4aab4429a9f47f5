/* The consumer that writes floats: blocks of any format to f32, f16 or bf16, on any word vocabulary. */
#pragma once
#include "kernels.h"
#include "values.h"

typedef struct {
    uint8_t *y;
    int dtype;
} to_float_put;
CBQ_FN void put_float(void *context, int at, const F v[CBQ_VECTORS]) {
    const to_float_put *to = context;
    f_store(to->y + at * (to->dtype == CBQ_F32 ? 4 : 2), v, to->dtype == CBQ_BF16 ? CBQ_BF16_QUIET : to->dtype);
}
CBQ_FN void block_to_float(const uint8_t *b, uint8_t *y, cbq_decoder f, int dtype) {
    to_float_put to = {y, dtype};
    block_values(b, f, dtype, put_float, &to);
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

#define CBQ_TO_FLOAT_ROW(f, ...) {f##_to_f32, f##_to_f16, f##_to_bf16},
