/* iq2_s: groups of 16, two rows of the grid each, with all signs. */
#pragma once
#include "encode.h"
#include "shared/iq2_fit.h"

CBQ_FN void iq2_s_weights(const superblocks *s, float *w) {
    for (int b = 0; b < s->n; b++) {
        const float *x = s->x + 256 * b, sigma2 = 2 * s->sum_of_squares[b] / 256;
        if (s->importance[b]) weights_of(x, s->importance[b], sigma2, 256, w + 256 * b);
        for (int i = 0; i < 256 && !s->importance[b]; i += CBQ_LANES) {
            F v = f_ld(x + i);
            f_st_f32(w + 256 * b + i, f_add(f_set1(0.25f * sigma2), f_mul(v, v)));
        }
    }
}

CBQ_FN void iq2_s_finish(const weighted *b, int block, cbq_iq2_s_block *out) {
    const float *scales = b->scales + 16 * block, d = largest_scale(scales, 16) / 31;
    uint8_t codes[16] = {0};
    if (largest_scale(scales, 16) > 0) codes_of_scales(scales, 16, d, 15, codes);
    cbq_iq2_s_pack(out, b->rows + 32 * block, b->kept_signs + 32 * block, codes, cbq_f32_to_f16(d * 0.9875f));
}

static void encode_iq2_s_superblocks(const superblocks *s, const cbq_neighbours *t) {
    weighted b;
    iq2_s_weights(s, b.w);
    take_signs(&b, s);
    iq2_fit_groups_of_16(t, &b, s->n, 1e-8f);
    for (int i = 0; i < s->n; i++) iq2_s_finish(&b, i, (cbq_iq2_s_block *)s->out + i);
}

static int encode_iq2_s(const cbq_encode_args *a) {
    return each_superblocks(a, sizeof(cbq_iq2_s_block), CBQ_GRID_IQ2_S, encode_iq2_s_superblocks);
}
