/* iq2_xs: groups of 16, two rows of the grid each, with an even number of signs. Needs an importance matrix. */
#pragma once
#include "encode.h"
#include "shared/iq2_groups.h"

static void encode_iq2_xs_superblock(const superblock *s, const cbq_neighbours *t) {
    weighted b;
    iq2_groups fitted;
    uint8_t scales[16];
    weights_of(s->x, s->importance, s->sum_of_squares / 256, 256, b.w);
    take_signs(&b, 0, s->x);
    even_signs(&b, 0, s->x);
    weigh_magnitudes(&b, 0);
    iq2_fit_groups_of_16(t, &b, 1e-15f, &fitted);
    if (fitted.largest_scale == 0) {
        memset(s->out, 0, sizeof(cbq_iq2_xs_block));
        return;
    }
    const float d = fitted.largest_scale / 31;
    iq2_scale_codes(fitted.scales, 16, d, scales);
    cbq_iq2_xs_pack((cbq_iq2_xs_block *)s->out, fitted.rows, fitted.signs, scales, cbq_f32_to_f16(d));
}

static int encode_iq2_xs(const cbq_encode_args *a) {
    return each_superblock(a, sizeof(cbq_iq2_xs_block), CBQ_GRID_IQ2_XS, encode_iq2_xs_superblock);
}
