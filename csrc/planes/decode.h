/* Codes and scales of planes to values, and what consumes them: floats in memory, dot products, bytes for products of integers.
   Included after a file of word/ and one of lanes/. */
#pragma once
#include "../codecs/values.h"
#include "../formats/shared/e2m1_values.h"
#include "../kernels/kernels.h"
#include "plane_kind.h"

/* n values from number `at` of the run on; n is CBQ_W but at the end of a run or a group, where the others are of no meaning. */
typedef void plane_put_fn(void *context, int64_t at, const F v[CBQ_VECTORS], int n);

CBQ_FN void plane_code_values(const uint8_t *codes, plane_kind k, T book, F v[CBQ_VECTORS]) {
    if (k.bits != 4) {
        ld_code_values(codes, k.bits, k.code, v);
        return;
    }
    CBQ_UNROLL_ALL
    for (int i = 0; i < CBQ_VECTORS; i++) {
        v[i] = t_pick16(book, i_ld_codes(codes + i * CBQ_LANES / 2, 4));
        if (k.order == CBQ_HIGH) v[i] = f_swap_pairs(v[i]);
    }
}

/* A word's worth of values. `scales` begin with that of its first code. */
CBQ_FN void plane_word(const uint8_t *codes, const float *scales, plane_kind k, T book, F global, int op, F v[CBQ_VECTORS]) {
    plane_code_values(codes, k, book, v);
    CBQ_UNROLL_ALL
    for (int i = 0; i < CBQ_VECTORS; i++) {
        v[i] = f_mul(v[i], f_set1(scales[k.group ? i * CBQ_LANES / k.group : 0]));
        if (op == CBQ_GLOBAL_MULTIPLY) v[i] = f_mul(v[i], global);
        if (op == CBQ_GLOBAL_DIVIDE) v[i] = f_div(v[i], global);
    }
}

/* n codes from number `at` on, whose scales begin at `scales`. The last ones go through memory of their own. */
CBQ_FN void plane_part(const cbq_plane_run *r, const float *scales, int64_t at, int64_t n, plane_kind k, T book, int op, plane_put_fn *put,
                       void *context) {
    const uint8_t *codes = r->codes + at * k.bits / 8;
    const F global = f_set1(r->global);
    F v[CBQ_VECTORS];
    int64_t i = 0;
    for (; i + CBQ_W <= n; i += CBQ_W) {
        plane_word(codes + i * k.bits / 8, k.group ? scales + i / k.group : scales, k, book, global, op, v);
        put(context, at + i, v, CBQ_W);
    }
    if (i == n) return;
    uint8_t last[CBQ_W] = {0};
    float last_scales[2] = {scales[k.group ? i / k.group : 0]}; /* half a word is one group, if groups are known */
    memcpy(last, codes + i * k.bits / 8, (size_t)((n - i) * k.bits + 7) / 8);
    plane_word(last, last_scales, k, book, global, op, v);
    put(context, at + i, v, (int)(n - i));
}

CBQ_FN void plane_values_op(const cbq_plane_run *r, plane_kind k, int op, plane_put_fn *put, void *context) {
    const T book = t_load16(k.bits == 4 ? k.book : cbq_e2m1_values);
    if (k.group) {
        plane_part(r, r->scales, 0, r->n, k, book, op, put, context);
        return;
    }
    const float *scale = r->scales;
    for (int64_t at = 0; at < r->n; at += r->group, scale++)
        plane_part(r, scale, at, r->n - at < r->group ? r->n - at : r->group, k, book, op, put, context);
}
/* Groups of the usual sizes are known to the compiler. */
CBQ_FN void plane_values(const cbq_plane_run *r, plane_kind k, plane_put_fn *put, void *context) {
    const int usual = k.by_value ? 64 : 128;
    if (k.group == 0 && r->group == usual && r->n % usual == 0) {
        plane_kind known = k;
        known.group = usual;
        plane_values_op(r, known, CBQ_GLOBAL_NONE, put, context);
        return;
    }
    if (k.finish == CBQ_SCALED || r->global_op == CBQ_GLOBAL_NONE) plane_values_op(r, k, CBQ_GLOBAL_NONE, put, context);
    else if (r->global_op == CBQ_GLOBAL_MULTIPLY) plane_values_op(r, k, CBQ_GLOBAL_MULTIPLY, put, context);
    else plane_values_op(r, k, CBQ_GLOBAL_DIVIDE, put, context);
}

/* ---- floats in memory ---- */

typedef struct {
    uint8_t *y;
    int dtype;
} plane_floats;
CBQ_FN void put_floats(void *context, int64_t at, const F v[CBQ_VECTORS], int n) {
    const plane_floats *to = context;
    const int size = to->dtype == CBQ_F32 ? 4 : 2, dtype = to->dtype == CBQ_BF16 ? CBQ_BF16_QUIET : to->dtype;
    if (n == CBQ_W) {
        f_store(to->y + at * size, v, dtype);
        return;
    }
    uint8_t last[CBQ_W * 4];
    f_store(last, v, dtype);
    memcpy(to->y + at * size, last, (size_t)(n * size));
}
CBQ_FN void plane_to_float(const cbq_plane_run *r, uint8_t *y, plane_kind k, int dtype) {
    plane_floats to = {y, dtype};
    plane_values(r, k, put_floats, &to);
}

/* ---- dot products ---- */

enum { SUMS = 4 }; /* accumulators a vector of x, so that one multiply-add does not wait for the last */

typedef struct {
    const float *x;
    int64_t stride;
    int m, sums;
    F sum[CBQ_DOT_M][SUMS];
} plane_dots;
CBQ_FN void add_products(plane_dots *d, const F v[CBQ_VECTORS], const float *x, int i) {
    CBQ_UNROLL_ALL
    for (int k = 0; k < CBQ_VECTORS; k++) {
        F *sum = &d->sum[i][k % d->sums];
        *sum = f_fma(v[k], f_ld(x + k * CBQ_LANES), *sum);
    }
}
/* Of a part of a word the rest is zeros, on both sides: values beyond the end may be infinite. */
CBQ_FN void put_dots(void *context, int64_t at, const F v[CBQ_VECTORS], int n) {
    plane_dots *d = context;
    if (n == CBQ_W) {
        CBQ_UNROLL_ALL
        for (int i = 0; i < d->m; i++) add_products(d, v, d->x + i * d->stride + at, i);
        return;
    }
    float values[CBQ_W], x[CBQ_W] = {0};
    F part[CBQ_VECTORS];
    for (int k = 0; k < CBQ_VECTORS; k++) f_st_f32(values + k * CBQ_LANES, v[k]);
    for (int i = n; i < CBQ_W; i++) values[i] = 0;
    for (int k = 0; k < CBQ_VECTORS; k++) part[k] = f_ld(values + k * CBQ_LANES);
    CBQ_UNROLL_ALL
    for (int i = 0; i < d->m; i++) {
        memcpy(x, d->x + i * d->stride + at, (size_t)n * 4);
        add_products(d, part, x, i);
    }
}
CBQ_FN void plane_dot_m(const cbq_plane_run *r, const float *x, int64_t stride, float *y, plane_kind k, int m) {
    plane_dots d = {.x = x, .stride = stride, .m = m, .sums = m == 1 ? SUMS : 2};
    CBQ_UNROLL_ALL
    for (int i = 0; i < m; i++)
        CBQ_UNROLL_ALL
        for (int s = 0; s < SUMS; s++) d.sum[i][s] = f_zero();
    plane_values(r, k, put_dots, &d);
    CBQ_UNROLL_ALL
    for (int i = 0; i < m; i++) y[i] += f_sum(f_add(f_add(d.sum[i][0], d.sum[i][1]), f_add(d.sum[i][2], d.sum[i][3])));
}
CBQ_FN void plane_dot(const cbq_plane_run *r, const float *x, int64_t stride, int m, float *y, plane_kind k) {
    switch (m) {
    case 1: plane_dot_m(r, x, stride, y, k, 1); break;
    case 2: plane_dot_m(r, x, stride, y, k, 2); break;
    case 3: plane_dot_m(r, x, stride, y, k, 3); break;
    case 4: plane_dot_m(r, x, stride, y, k, 4); break;
    }
}

/* ---- bytes ---- */

/* The scales of 32 codes, as the block has them. The tensor's scale goes into them. */
CBQ_FN void plane_bytes_scales(const cbq_plane_run *r, int64_t at, plane_kind k, uint8_t *to) {
    for (int g = 0; g < 32 / k.group; g++) {
        float scale = r->scales[at / k.group + g] / (float)k.multiple;
        if (r->global_op == CBQ_GLOBAL_MULTIPLY) scale *= r->global;
        if (r->global_op == CBQ_GLOBAL_DIVIDE) scale /= r->global;
        memcpy(to + 4 * g, &scale, 4);
    }
}
/* Codes of 4 bits are looked up, those of 8 are their own values. */
CBQ_FN void plane_to_bytes(const cbq_plane_run *r, uint8_t *blocks, plane_kind k) {
    const int header = 32 / k.group * 4;
    uint8_t values[16];
    for (int i = 0; i < 16; i++) values[i] = (uint8_t)(int)(k.book[i] * (float)k.multiple);
    const uint8_t *codes = r->codes;
    for (int64_t at = 0; at < r->n; at += 32, codes += 32 * k.bits / 8, blocks += header + 32) {
        plane_bytes_scales(r, at, k, blocks);
        for (int o = 0; o < 32; o += CBQ_W) {
            W bytes = k.bits == 4 ? w_lookup(w_pairs(codes + o / 2), values) : w_ld(codes, (uint32_t)o, 1);
            w_store(bytes, blocks + header + o);
        }
    }
}
