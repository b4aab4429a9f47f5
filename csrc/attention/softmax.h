/* Softmax of a step of scores, joined with what came before: a running maximum, the sum of the exponentials, and what both have to be
   multiplied with when the maximum rises. The maximum begins at -infinity, so that no logit is too low to count. */
#pragma once
#include <math.h>

#include "../lanes/common.h"
#include "../lanes/exp.h"
#include "attention.h"

/* x may be y. */
static void exp_array(const float *x, float *y, int64_t n) {
    for (; n >= CBQ_LANES; n -= CBQ_LANES, x += CBQ_LANES, y += CBQ_LANES) f_st_f32(y, f_exp(f_ld(x)));
    if (n == 0) return;
    float last[CBQ_LANES] = {0};
    memcpy(last, x, (size_t)n * 4);
    f_st_f32(last, f_exp(f_ld(last)));
    memcpy(y, last, (size_t)n * 4);
}

/* What is taken off the logits: the maximum, but for that of rows of -infinity alone. */
CBQ_FN float base_of(float largest) { return largest == -INFINITY ? 0 : largest; }

/* Scores of n rows become weights, 0 up to a whole vector; there, the scores are those of any rows. Returns whether a score was
   -infinity: its row contributes nothing, whatever its value is. */
static int softmax_step(float *scores, int64_t heads, int64_t n, float *largest, float *total, float *rescale) {
    const int64_t whole = (n + CBQ_LANES - 1) / CBQ_LANES * CBQ_LANES;
    int any_masked = 0;
    for (int64_t h = 0; h < heads; h++) {
        const float *s = scores + h * CBQ_STEP, before = largest[h];
        F high = f_ld(s), low = high;
        for (int64_t i = CBQ_LANES; i < whole; i += CBQ_LANES) high = f_max(high, f_ld(s + i)), low = f_min(low, f_ld(s + i));
        const float here = f_largest(high);
        largest[h] = before > here ? before : here; /* NaN where that is one */
        rescale[h] = before - base_of(largest[h]);
        any_masked |= f_smallest(low) == -INFINITY;
    }
    exp_array(rescale, rescale, heads);
    for (int64_t h = 0; h < heads; h++) {
        float *s = scores + h * CBQ_STEP;
        const F base = f_set1(base_of(largest[h]));
        F sum = f_zero();
        for (int64_t i = n; i < whole; i++) s[i] = -INFINITY;
        for (int64_t i = 0; i < whole; i += CBQ_LANES) {
            F weight = f_exp(f_sub(f_ld(s + i), base));
            f_st_f32(s + i, weight);
            sum = f_add(sum, weight);
        }
        total[h] = total[h] * rescale[h] + f_sum(sum);
    }
    return any_masked;
}
