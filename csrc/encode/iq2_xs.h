/* iq2_xs: groups of 16, two rows of the grid each, with an even number of signs. Needs an importance matrix. */
#pragma once
#include "encode.h"
#include "shared/iq2_fit.h"

CBQ_FN void iq2_xs_finish(const weighted *b, int block, cbq_iq2_xs_block *out) {
    const float *scales = b->scales + 16 * block, d = largest_scale(scales, 16) / 31;
    uint8_t codes[16];
    if (largest_scale(scales, 16) == 0) {
        memset(out, 0, sizeof *out);
        return;
    }
    codes_of_scales(scales, 16, d, 15, codes);
    cbq_iq2_xs_pack(out, b->rows + 32 * block, b->kept_signs + 32 * block, codes, cbq_f32_to_f16(d));
}

static void encode_iq2_xs_superblocks(const superblocks *s, const cbq_neighbours *t) {
    weighted b;
    for (int i = 0; i < s->n; i++) weights_of(s->x + 256 * i, s->importance[i], s->sum_of_squares[i] / 256, 256, b.w + 256 * i);
    take_signs(&b, s);
    even_signs(&b, s);
    iq2_fit_groups_of_16(t, &b, s->n, 1e-15f);
    for (int i = 0; i < s->n; i++) iq2_xs_finish(&b, i, (cbq_iq2_xs_block *)s->out + i);
}

static int encode_iq2_xs(const cbq_encode_args *a) {
    return each_superblocks(a, sizeof(cbq_iq2_xs_block), CBQ_GRID_IQ2_XS, encode_iq2_xs_superblocks);
}
