/* NEON's 16-bit pairs. */
#pragma once
CBQ_FN I dot_pairs(I sum, I codes, I x) {
    int16x8_t c = vreinterpretq_s16_s32(codes), v = vreinterpretq_s16_s32(x);
    return vaddq_s32(sum, vpaddq_s32(vmull_s16(vget_low_s16(c), vget_low_s16(v)), vmull_s16(vget_high_s16(c), vget_high_s16(v))));
}
#include "quads16.h"
