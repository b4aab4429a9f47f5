/* silu(gate) up, in float32. */
#pragma once
#include "pieces.h"
#include "../lanes/exp.h"
#include "../lanes/log.h"

CBQ_FN void swiglu_lanes(const float *gate, const float *up, float *y) {
    F g = f_ld(gate);
    f_st_f32(y, f_mul(f_mul(g, f_sigmoid(g)), f_ld(up)));
}
static void swiglu(const float *gate, const float *up, float *y, int64_t n) {
    int64_t i = 0;
    for (; i + CBQ_LANES <= n; i += CBQ_LANES) swiglu_lanes(gate + i, up + i, y + i);
    if (i == n) return;
    float last[3][CBQ_LANES] = {{0}};
    const size_t rest = (size_t)(n - i) * 4;
    memcpy(last[0], gate + i, rest), memcpy(last[1], up + i, rest);
    swiglu_lanes(last[0], last[1], last[2]);
    memcpy(y + i, last[2], rest);
}
