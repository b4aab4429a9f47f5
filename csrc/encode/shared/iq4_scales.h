/* The scales of iq4_nl and iq4_xs: CBQ_LANES groups of 32 at a time, one to a lane, so that every sum runs through the
   elements of its group in order.

   A trial scale gives each element the nearest value of the codebook; of the sums (w q) x and (w q) q the best scale is
   made. There are 16 trials: one that sends the largest element to +127, then fifteen that send it to -134 .. -120.
   The fifteen need no search for each: from the first to the last the scaled element grows by 134 / 120, and thresholds
   of the codebook (the midpoints of its values) are at least 101 / 79 apart. So an element crosses at most one of them, and
   two codes, with the terms of their sums made once, serve all fifteen. */
#pragma once
#include <math.h>

#include "../../formats/shared/iq4_values.h"

#define IQ4_FEW 5 /* trials that are summed together: ten sums stay in registers */
enum { IQ4_GROUP = 32, IQ4_TRIALS = 15, IQ4_MOST = 7 };

/* What is below the threshold between codes i and i + 1 is nearer to i; a tie goes to i + 1, as in the reference. */
CBQ_FN float iq4_threshold(int i) { return 0.5f * (cbq_iq4_values[i] + cbq_iq4_values[i + 1]); }

typedef struct {
    T values, next;  /* of a code, its value, and that of the next code */
    T third, fourth; /* thresholds for the third and fourth step of a search */
} iq4_codebook;

CBQ_FN iq4_codebook iq4_load_codebook(void) {
    float next[16], third[8], fourth[8];
    for (int i = 0; i < 15; i++) next[i] = cbq_iq4_values[i + 1];
    next[15] = INFINITY; /* so that the threshold above the last code is, too */
    for (int i = 0; i < 8; i++) {
        third[i] = iq4_threshold(4 * (i & 3) + 1);
        fourth[i] = iq4_threshold(2 * i);
    }
    return (iq4_codebook){t_load16(cbq_iq4_values), t_load16(next), t_load8(third), t_load8(fourth)};
}

/* The nearest code, by a binary search for the number of thresholds that are not above `a`. */
CBQ_FN I iq4_nearest(const iq4_codebook *b, F a) {
    const I one = i_set1(1), two = i_set1(2);
    M upper = m_not_lt(a, f_set1(iq4_threshold(7)));
    M second = m_not_lt(a, f_select(upper, f_set1(iq4_threshold(11)), f_set1(iq4_threshold(3))));
    I code = i_or(i_where(upper, two), i_where(second, one));
    code = i_or(i_shl(code, 1), i_where(m_not_lt(a, t_pick8(b->third, code)), one));
    return i_or(i_shl(code, 1), i_where(m_not_lt(a, t_pick8(b->fourth, code)), one));
}

/* n elements, a multiple of CBQ_LANES, to codes. */
CBQ_FN void iq4_codes(const iq4_codebook *b, const float *x, float inverse, int n, uint8_t *codes) {
    F scale = f_set1(inverse);
    for (int i = 0; i < n; i += CBQ_LANES) i_st_u8(codes + i, iq4_nearest(b, f_mul(scale, f_ld(x + i))));
}

/* Element j of the group in a lane is number j * CBQ_LANES + lane. */
typedef struct {
    float x[IQ4_GROUP * CBQ_LANES], w[IQ4_GROUP * CBQ_LANES];
    /* Below the threshold an element has its low code, else the high one. Terms of the sums for either: */
    float threshold[IQ4_GROUP * CBQ_LANES];
    float low_x[IQ4_GROUP * CBQ_LANES], high_x[IQ4_GROUP * CBQ_LANES];
    float low_q[IQ4_GROUP * CBQ_LANES], high_q[IQ4_GROUP * CBQ_LANES];
} __attribute__((aligned(64))) iq4_groups;

/* With its sign: the first one where several have it. */
CBQ_FN F iq4_signed_largest(const iq4_groups *g) {
    F largest = f_zero(), with_sign = f_zero();
    for (int j = 0; j < IQ4_GROUP; j++) {
        F x = f_ld(g->x + j * CBQ_LANES), magnitude = f_abs(x);
        M larger = m_lt(largest, magnitude);
        largest = f_select(larger, magnitude, largest);
        with_sign = f_select(larger, x, with_sign);
    }
    return with_sign;
}

/* The sums of the trial of opposite sign, and what the other fifteen need. */
CBQ_FN void iq4_prepare(iq4_groups *g, const iq4_codebook *b, F largest, F *sum_x, F *sum_q) {
    F opposite = f_div(f_set1(1.0f), f_div(largest, f_set1(127.0f)));
    F first = f_div(f_set1(-127.0f - IQ4_MOST), largest), last = f_div(f_set1(-127.0f + IQ4_MOST), largest);
    *sum_x = *sum_q = f_zero();
    for (int j = 0; j < IQ4_GROUP * CBQ_LANES; j += CBQ_LANES) {
        F x = f_ld(g->x + j), w = f_ld(g->w + j);
        F q = t_pick16(b->values, iq4_nearest(b, f_mul(opposite, x))), wq = f_mul(w, q);
        *sum_x = f_add(*sum_x, f_mul(wq, x));
        *sum_q = f_add(*sum_q, f_mul(wq, q));
        I code = iq4_nearest(b, f_min(f_mul(first, x), f_mul(last, x)));
        F low = t_pick16(b->values, code), high = t_pick16(b->next, code);
        F w_low = f_mul(w, low), w_high = f_mul(w, high);
        f_st_f32(g->threshold + j, f_mul(f_set1(0.5f), f_add(low, high)));
        f_st_f32(g->low_x + j, f_mul(w_low, x)), f_st_f32(g->high_x + j, f_mul(w_high, x));
        f_st_f32(g->low_q + j, f_mul(w_low, low)), f_st_f32(g->high_q + j, f_mul(w_high, high));
    }
}

/* The sums of IQ4_FEW trials. */
CBQ_FN void iq4_sums(const iq4_groups *g, const F inverse[IQ4_FEW], F sum_x[IQ4_FEW], F sum_q[IQ4_FEW]) {
    CBQ_UNROLL_ALL
    for (int t = 0; t < IQ4_FEW; t++) sum_x[t] = sum_q[t] = f_zero();
    for (int j = 0; j < IQ4_GROUP * CBQ_LANES; j += CBQ_LANES) {
        F x = f_ld(g->x + j), threshold = f_ld(g->threshold + j);
        F low_x = f_ld(g->low_x + j), high_x = f_ld(g->high_x + j), low_q = f_ld(g->low_q + j), high_q = f_ld(g->high_q + j);
        CBQ_UNROLL_ALL
        for (int t = 0; t < IQ4_FEW; t++) {
            M below = m_lt(f_mul(inverse[t], x), threshold);
            sum_x[t] = f_add(sum_x[t], f_select(below, low_x, high_x));
            sum_q[t] = f_add(sum_q[t], f_select(below, low_q, high_q));
        }
    }
}

/* The scale of each group of g, whose x and w are set; 0 where all elements are tiny. */
CBQ_FN F iq4_scales(iq4_groups *g, const iq4_codebook *b) {
    const F zero = f_zero();
    F largest = iq4_signed_largest(g);
    M tiny = m_lt(f_abs(largest), f_set1(1e-15f));
    if (!m_any(m_not_lt(f_abs(largest), f_set1(1e-15f)))) return zero;
    F sum_x, sum_q;
    iq4_prepare(g, b, largest, &sum_x, &sum_q);
    F scale = f_where(m_lt(zero, sum_q), f_div(sum_x, sum_q)), best = f_mul(scale, sum_x);
    for (int first = 0; first < IQ4_TRIALS; first += IQ4_FEW) {
        F inverse[IQ4_FEW], sums_x[IQ4_FEW], sums_q[IQ4_FEW];
        CBQ_UNROLL_ALL
        for (int t = 0; t < IQ4_FEW; t++) inverse[t] = f_div(f_set1(-127.0f - IQ4_MOST + (float)(first + t)), largest);
        iq4_sums(g, inverse, sums_x, sums_q);
        CBQ_UNROLL_ALL
        for (int t = 0; t < IQ4_FEW; t++) {
            M better = m_and(m_lt(zero, sums_q[t]), m_lt(f_mul(best, sums_q[t]), f_mul(sums_x[t], sums_x[t])));
            scale = f_select(better, f_div(sums_x[t], sums_q[t]), scale);
            best = f_select(better, f_mul(scale, sums_x[t]), best);
        }
    }
    return f_select(tiny, zero, scale);
}
