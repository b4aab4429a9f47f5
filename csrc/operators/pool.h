/* compressor_pool: sums over the entries of a window, weighted by the softmax of their gates. A column in each lane; a block of entries
   at a time, so that each input is read once and the exps of a block do not wait for each other. */
#pragma once
#include "pieces.h"
#include "../lanes/exp.h"
#include <math.h>

CBQ_FN F load_lanes(const float *p, int64_t n) {
    if (n >= CBQ_LANES) return f_ld(p);
    float last[CBQ_LANES] = {0};
    memcpy(last, p, (size_t)n * 4);
    return f_ld(last);
}

/* Columns i .. of a block; n of its lanes are there. An entry with the gate -inf is left out whatever it holds. */
CBQ_FN void pool_lanes(const cbq_pool_block *b, int64_t i, int64_t n, int entries) {
    const F minus_infinity = f_set1(-INFINITY);
    cbq_pool_state *s = b->state;
    F gate[CBQ_POOL_ENTRIES], largest = b->is_first ? minus_infinity : f_ld(s->largest + i), before = largest;
    for (int k = 0; k < entries; k++) {
        gate[k] = load_lanes(b->gate[k] + i, n);
        if (b->ape_on_gate) gate[k] = f_add(gate[k], load_lanes(b->ape[k] + i, n));
        largest = f_max(largest, gate[k]);
    }
    F zero_point = f_select(m_eq(largest, minus_infinity), f_zero(), largest); /* -inf - -inf would be NaN */
    F sum = f_zero(), total = f_zero();
    if (!b->is_first) {
        F fade = f_exp(f_sub(before, zero_point));
        sum = f_mul(f_ld(s->sum + i), fade), total = f_mul(f_ld(s->total + i), fade);
    }
    for (int k = 0; k < entries; k++) {
        F weight = f_exp(f_sub(gate[k], zero_point)), value = load_lanes(b->kv[k] + i, n);
        if (!b->ape_on_gate) value = f_add(value, load_lanes(b->ape[k] + i, n));
        sum = f_add(sum, weight);
        total = f_fma(weight, f_where(m_ne(gate[k], minus_infinity), value), total);
    }
    f_st_f32(s->largest + i, largest), f_st_f32(s->sum + i, sum), f_st_f32(s->total + i, total);
}
static void pool(const cbq_pool_block *b) {
    for (int64_t i = 0; i < b->n; i += CBQ_LANES) {
        if (b->entries == CBQ_POOL_ENTRIES && b->n - i >= CBQ_LANES) pool_lanes(b, i, CBQ_LANES, CBQ_POOL_ENTRIES);
        else pool_lanes(b, i, b->n - i, b->entries);
    }
}

/* The same where the weights are known: their sum is 1, or there is no entry. */
static void pool_weighted(const cbq_pool_block *b) {
    for (int64_t i = 0; i < b->n; i += CBQ_LANES) {
        const int64_t n = b->n - i;
        F total = b->is_first ? f_zero() : f_ld(b->state->total + i);
        for (int k = 0; k < b->entries; k++)
            total = f_fma(f_set1(b->weight[k]), f_add(load_lanes(b->kv[k] + i, n), load_lanes(b->ape[k] + i, n)), total);
        f_st_f32(b->state->total + i, total);
        f_st_f32(b->state->sum + i, f_set1(1.0f));
    }
}

/* Where every gate is -inf there is nothing to divide, and the result is 0. */
static void pool_end(const cbq_pool_state *s, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i += CBQ_LANES) {
        F sum = f_ld(s->sum + i), result = f_where(m_ne(sum, f_zero()), f_div(f_ld(s->total + i), sum));
        if (n - i >= CBQ_LANES) {
            f_st_f32(y + i, result);
            continue;
        }
        float last[CBQ_LANES];
        f_st_f32(last, result);
        memcpy(y + i, last, (size_t)(n - i) * 4);
    }
}

static void softmax(float *gates, int64_t n) {
    F largest = f_set1(-INFINITY), sum = f_zero();
    for (int64_t i = n; i % CBQ_LANES; i++) gates[i] = -INFINITY;
    for (int64_t i = 0; i < n; i += CBQ_LANES) largest = f_max(largest, f_ld(gates + i));
    float top = f_largest(largest);
    F zero_point = f_set1(top == -INFINITY ? 0.0f : top);
    for (int64_t i = 0; i < n; i += CBQ_LANES) {
        F weight = f_exp(f_sub(f_ld(gates + i), zero_point));
        sum = f_add(sum, weight);
        f_st_f32(gates + i, weight);
    }
    float all = f_sum(sum);
    for (int64_t i = 0; i < n; i += CBQ_LANES) f_st_f32(gates + i, f_where(m_ne(f_set1(all), f_zero()), f_div(f_ld(gates + i), f_set1(all))));
}
