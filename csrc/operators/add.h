/* y = a + b: a sum of two float32, rounded once to what y holds. */
#pragma once
#include "pieces.h"

CBQ_FN void add_piece(const cbq_add_row *r, int64_t i, int64_t n, int mix) {
    F a[CBQ_VECTORS], b[CBQ_VECTORS];
    load_piece(r->a, i, n, type_of(mix, r->a_dtype), a);
    load_piece(r->b, i, n, type_of(mix, r->b_dtype), b);
    CBQ_UNROLL_ALL
    for (int k = 0; k < CBQ_VECTORS; k++) a[k] = f_add(a[k], b[k]);
    store_piece(r->y, i, n, type_of(mix, r->y_dtype), r->past, a);
}
CBQ_FN void add_row(const cbq_add_row *r, int mix) {
    int64_t i = 0;
    for (; i + CBQ_W <= r->n; i += CBQ_W) add_piece(r, i, CBQ_W, mix);
    if (i < r->n) add_piece(r, i, r->n - i, mix);
}

#define CBQ_ADD(MIX, mix) static void add_##mix(const cbq_add_row *row) { add_row(row, CBQ_##MIX); }
CBQ_EACH_MIX(CBQ_ADD)
