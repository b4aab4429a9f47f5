/* iq2_s: groups of 16, two rows of the grid each, with all signs. */
#pragma once
#include "encode.h"
#include "shared/iq2_groups.h"

CBQ_FN void iq2_s_weights(const superblock *s, float *w) {
    const float sigma2 = 2 * s->sum_of_squares / 256;
    if (s->importance) {
        weights_of(s->x, s->importance, sigma2, 256, w);
        return;
    }
    const F quarter = f_set1(0.25f * sigma2);
    for (int i = 0; i < 256; i += CBQ_LANES) {
        F v = f_ld(s->x + i);
        f_st_f32(w + i, f_add(quarter, f_mul(v, v)));
    }
}

static void encode_iq2_s_superblock(const superblock *s, const cbq_neighbours *t) {
    weighted b;
    iq2_groups fitted;
    uint8_t scales[16] = {0};
    iq2_s_weights(s, b.w);
    take_signs(&b, 0, s->x);
    weigh_magnitudes(&b, 0);
    iq2_fit_groups_of_16(t, &b, 1e-8f, &fitted);
    const float d = fitted.largest_scale / 31;
    if (fitted.largest_scale > 0) iq2_scale_codes(fitted.scales, 16, d, scales);
    cbq_iq2_s_pack((cbq_iq2_s_block *)s->out, fitted.rows, fitted.signs, scales, cbq_f32_to_f16(d * 0.9875f));
}

static int encode_iq2_s(const cbq_encode_args *a) {
    return each_superblock(a, sizeof(cbq_iq2_s_block), CBQ_GRID_IQ2_S, encode_iq2_s_superblock);
}
