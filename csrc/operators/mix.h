/* Weighted sums of the streams of a residual: y[o] = sum over i of w[o][i] x[i], in the order of i. */
#pragma once
#include "pieces.h"

/* The weights of a row are one number each, or lie along it. */
CBQ_FN F mix_weight(const cbq_mix_rows *r, int which, int64_t at, int64_t n, int along) {
    const float *w = r->w + which * r->w_step;
    if (!along) return f_set1(*w);
    if (n >= CBQ_LANES) return f_ld(w + at);
    float last[CBQ_LANES] = {0};
    if (n > 0) memcpy(last, w + at, (size_t)n * 4);
    return f_ld(last);
}

CBQ_FN void mix_piece(const cbq_mix_rows *r, int64_t i, int64_t n, int ins, int outs, int along, int mix) {
    F x[CBQ_EXPANDED][CBQ_VECTORS], y[CBQ_VECTORS];
    CBQ_UNROLL_ALL
    for (int k = 0; k < ins; k++) {
        const int dtype = type_of(mix, k ? r->x_dtype : r->first_dtype), size = cbq_float_bytes(dtype);
        if (n >= CBQ_W) cbq_prefetch((uintptr_t)r->x[k] + (uintptr_t)(i * size + (k ? r->x_ahead : r->first_ahead)), CBQ_W * size);
        load_piece(r->x[k], i, n, dtype, x[k]);
    }
    CBQ_UNROLL_ALL
    for (int o = 0; o < outs; o++) {
        CBQ_UNROLL_ALL
        for (int v = 0; v < CBQ_VECTORS; v++) {
            const int64_t at = i + v * CBQ_LANES, left = n - v * CBQ_LANES;
            y[v] = f_mul(mix_weight(r, o * ins, at, left, along), x[0][v]);
            CBQ_UNROLL_ALL
            for (int k = 1; k < ins; k++) y[v] = f_fma(mix_weight(r, o * ins + k, at, left, along), x[k][v], y[v]);
        }
        store_piece(r->y[o], i, n, type_of(mix, r->y_dtype), r->past, y);
    }
}
CBQ_FN void mix_row(const cbq_mix_rows *r, int ins, int outs, int along, int mix) {
    int64_t i = 0;
    for (; i + CBQ_W <= r->n; i += CBQ_W) mix_piece(r, i, CBQ_W, ins, outs, along, mix);
    if (i < r->n) mix_piece(r, i, r->n - i, ins, outs, along, mix);
}

#define CBQ_COLLAPSE(MIX, mix) \
    static void collapse_##mix(const cbq_mix_rows *r) { mix_row(r, CBQ_STREAMS, 1, 0, CBQ_##MIX); } \
    static void collapse_along_##mix(const cbq_mix_rows *r) { mix_row(r, CBQ_STREAMS, 1, 1, CBQ_##MIX); }
#define CBQ_EXPAND(MIX, mix) \
    static void expand_##mix(const cbq_mix_rows *r) { mix_row(r, CBQ_EXPANDED, CBQ_STREAMS, 0, CBQ_##MIX); } \
    static void expand_along_##mix(const cbq_mix_rows *r) { mix_row(r, CBQ_EXPANDED, CBQ_STREAMS, 1, CBQ_##MIX); }
CBQ_EACH_MIX(CBQ_COLLAPSE)
CBQ_EACH_MIX(CBQ_EXPAND)
