/* Scores and their places as integers that sort: for C and CUDA. */
#pragma once
#include "../base.h"

/* Orders floats as integers: NaN below -inf, both zeros alike. Then the lower place wins. */
CBQ_FN uint64_t choice_key(float score, int64_t place) {
    uint32_t u = cbq_as_u32(score + 0.0f);
    u = score != score ? 0 : u >> 31 ? ~u : u | 0x80000000u;
    return (uint64_t)u << 32 | (uint32_t)~place;
}
CBQ_FN float key_score(uint64_t key) {
    uint32_t u = (uint32_t)(key >> 32);
    return cbq_as_f32(u >> 31 ? u & 0x7fffffffu : ~u);
}
