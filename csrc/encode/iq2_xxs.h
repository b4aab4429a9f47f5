/* iq2_xxs: groups of 32, four rows of the grid each, with an even number of signs. Needs an importance matrix. */
#pragma once
#include "encode.h"
#include "shared/iq2_fit.h"
#include "shared/positive_scales.h"

/* Candidates are near the best scale for codes 0 .. 4 without the grid. */
CBQ_FN void iq2_xxs_fit_groups(const cbq_neighbours *t, weighted *b, int blocks) {
    const iq2_shape shape = {.n = 32, .steps = 6, .all_again = 1};
    int32_t codes[32 * CBQ_LANES];
    group_list list;
    iq2_lanes g;
    list_groups(b, blocks, 32, 1e-15f, &list);
    for (int i = 0; i < list.n; i += CBQ_LANES) {
        const uint16_t *groups = list.at + i;
        gather_groups(b->x, 32, groups, g.x);
        gather_groups(b->w, 32, groups, g.w);
        const F scale = positive_scales(g.x, g.w, 32, 4, codes), reach = f_mul(scale, f_set1(3));
        iq2_fit(t, b, shape, groups, reach, scale, first_lanes(list.n - i) & m_bits(m_lt(f_zero(), reach)), &g);
    }
}

CBQ_FN void iq2_xxs_finish(const weighted *b, int block, cbq_iq2_xxs_block *out) {
    const float *scales = b->scales + 8 * block, d = largest_scale(scales, 8) / 31;
    uint8_t codes[8];
    if (largest_scale(scales, 8) == 0) {
        memset(out, 0, sizeof *out);
        return;
    }
    codes_of_scales(scales, 8, d, 15, codes);
    cbq_iq2_xxs_pack(out, b->rows + 32 * block, b->kept_signs + 32 * block, codes, cbq_f32_to_f16(d));
}

static void encode_iq2_xxs_superblocks(const superblocks *s, const cbq_neighbours *t) {
    weighted b;
    for (int i = 0; i < s->n; i++) weights_of(s->x + 256 * i, s->importance[i], s->sum_of_squares[i] / 256, 256, b.w + 256 * i);
    take_signs(&b, s);
    even_signs(&b, s);
    iq2_xxs_fit_groups(t, &b, s->n);
    for (int i = 0; i < s->n; i++) iq2_xxs_finish(&b, i, (cbq_iq2_xxs_block *)s->out + i);
}

static int encode_iq2_xxs(const cbq_encode_args *a) {
    return each_superblocks(a, sizeof(cbq_iq2_xxs_block), CBQ_GRID_IQ2_XXS, encode_iq2_xxs_superblocks);
}
