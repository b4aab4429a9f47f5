/* What iq3_xxs and iq3_s do alike around the search of iq3_search.h. */
#pragma once
#include <math.h>

#include "iq3_search.h"
#include "largest.h"
#include "weights.h"

/* The weights of a superblock: x^2, or importance * sqrt(2 mean x^2 + x^2). */
CBQ_FN void iq3_weights(const float *x, const float *importance, float w[256]) {
    float sum = 0;
    if (!importance) {
        for (int i = 0; i < 256; i += CBQ_LANES) f_st_f32(w + i, f_mul(f_ld(x + i), f_ld(x + i)));
        return;
    }
    for (int i = 0; i < 256; i++) sum += x[i] * x[i];
    weights_of(x, importance, 2 * sum / 256, 256, w);
}

/* Magnitudes, and the signs as bits. */
CBQ_FN uint32_t iq3_take_signs(const float *x, iq3_group *g) {
    uint32_t signs = 0;
    for (int i = 0; i < 32; i += CBQ_LANES) {
        signs |= m_bits(m_lt(f_ld(x + i), f_zero())) << i;
        f_st_f32(g->x + i, f_abs(f_ld(x + i)));
    }
    return signs;
}

/* What follows from x and w, once the signs are settled. */
CBQ_FN void iq3_complete(iq3_group *g) {
    F largest = f_ld(g->x);
    for (int i = 0; i < 32; i += CBQ_LANES) {
        F x = f_ld(g->x + i), w = f_ld(g->w + i);
        largest = f_max(x, largest);
        f_st_f32(g->root + i, f_sqrt(w));
        f_st_f32(g->wx + i, f_mul(w, x));
    }
    g->largest = f_largest(largest);
}

/* The scales of groups as odd numbers 2 s + 1 of which the largest is 31, under the scale d of the superblock. */
CBQ_FN void iq3_round_scales(const float scales[8], float d, uint8_t rounded[8]) {
    const float inverse = 1 / d;
    for (int g = 0; g < 8; g++) rounded[g] = (uint8_t)cbq_clamp(cbq_nearest(0.5f * (inverse * scales[g] - 1)), 0, 15);
}
