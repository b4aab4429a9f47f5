/* Every kernel of attention, and the table of them. Included by isa/attention/NAME.c after a file of word/ and one of lanes/. */
#pragma once
#include "../lanes/common.h"
#include "../lanes/exp.h"
#include "attention.h"
#include "top.h"

static void exp_array(const float *x, float *y, int64_t n) {
    for (; n >= CBQ_LANES; n -= CBQ_LANES, x += CBQ_LANES, y += CBQ_LANES) f_st_f32(y, f_exp(f_ld(x)));
    if (n == 0) return;
    float last[CBQ_LANES] = {0};
    memcpy(last, x, (size_t)n * 4);
    f_st_f32(last, f_exp(f_ld(last)));
    memcpy(y, last, (size_t)n * 4);
}

#define CBQ_ATTENTION_TABLE { \
    .exp = exp_array, \
    .scores_above = scores_above, .scores_to_order = scores_to_order, .count_from = count_from}
