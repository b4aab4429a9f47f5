/* The partial results of one head, joined once and in the order of the pieces, with the sink: a logit without a value. */
#pragma once
#include "softmax.h"

/* What exponentials of this base count for under another; 1 of infinity itself. */
CBQ_FN void weights_of(const cbq_merge_args *a, float largest, float *weights) {
    for (int64_t p = 0; p < a->pieces; p++) weights[p] = a->largest[p * a->step] - base_of(largest);
    weights[a->pieces] = a->sink - base_of(largest);
    exp_array(weights, weights, a->pieces + 1);
    if (a->sink == largest && largest == INFINITY) weights[a->pieces] = 1;
}

CBQ_FN void store_some(uint8_t *to, const F *v, int64_t n, int dtype) {
    uint8_t last[CBQ_W * 4];
    f_store(last, v, dtype);
    memcpy(to, last, (size_t)(n * (dtype == CBQ_F32 ? 4 : 2)));
}

static void merge(const cbq_merge_args *a) {
    float weights[CBQ_MAX_PIECES + 1], largest = a->sink, total;
    for (int64_t p = 0; p < a->pieces; p++) {
        const float here = a->largest[p * a->step];
        largest = largest > here ? largest : here; /* NaN, where there is one, is seen in the sums */
    }
    weights_of(a, largest, weights);
    total = weights[a->pieces];
    for (int64_t p = 0; p < a->pieces; p++) total += weights[p] * a->total[p * a->step];
    const F whole = f_set1(total), none = f_zero();
    const M is_none = m_eq(whole, none);
    for (int64_t i = 0; i < a->width; i += CBQ_W) {
        F sum[CBQ_VECTORS];
        CBQ_UNROLL_ALL
        for (int v = 0; v < CBQ_VECTORS; v++) sum[v] = f_zero();
        for (int64_t p = 0; p < a->pieces; p++) {
            const float *o = a->o + p * a->o_step + i;
            const F weight = f_set1(weights[p]);
            CBQ_UNROLL_ALL
            for (int v = 0; v < CBQ_VECTORS; v++) sum[v] = f_fma(weight, f_ld(o + v * CBQ_LANES), sum[v]);
        }
        CBQ_UNROLL_ALL
        for (int v = 0; v < CBQ_VECTORS; v++) sum[v] = f_select(is_none, none, f_div(sum[v], whole));
        const int64_t left = a->width - i, n = left < CBQ_W ? left : CBQ_W;
        uint8_t *to = a->out + i * (a->dtype == CBQ_F32 ? 4 : 2);
        if (n < CBQ_W) store_some(to, sum, n, a->dtype);
        else f_store(to, sum, a->dtype);
    }
}
