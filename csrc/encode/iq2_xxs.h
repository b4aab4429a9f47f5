/* iq2_xxs: groups of 32, four rows of the grid each, with an even number of signs. Needs an importance matrix. */
#pragma once
#include "encode.h"
#include "shared/iq2_search.h"
#include "shared/lanes_of_groups.h"
#include "shared/positive_scales.h"

enum { IQ2_XXS_AT_ONCE = CBQ_LANES > 8 ? CBQ_LANES / 8 : 1 }; /* superblocks, so that their groups fill the lanes */

CBQ_FN void iq2_xxs_take(const superblock *s, weighted *b) {
    weights_of(s->x, s->importance, s->sum_of_squares / 256, 256, b->w);
    take_signs(b, s->x);
    even_signs(b, s->x);
    weigh_magnitudes(b);
}

/* The scales of the groups without the grid, for codes 0 .. 4. */
CBQ_FN void iq2_xxs_free_scales(const weighted *b, float scales[8 * IQ2_XXS_AT_ONCE]) {
    float x[32 * CBQ_LANES] __attribute__((aligned(64))), w[32 * CBQ_LANES] __attribute__((aligned(64)));
    float of_groups[2][8 * IQ2_XXS_AT_ONCE][32];
    int32_t codes[32 * CBQ_LANES];
    for (int k = 0; k < IQ2_XXS_AT_ONCE; k++) {
        memcpy(of_groups[0][8 * k], b[k].x, sizeof b[k].x);
        memcpy(of_groups[1][8 * k], b[k].w, sizeof b[k].w);
    }
    for (int g = 0; g < 8 * IQ2_XXS_AT_ONCE; g += CBQ_LANES) {
        groups_to_lanes(of_groups[0][g], 32, 1, x);
        groups_to_lanes(of_groups[1][g], 32, 1, w);
        f_st_f32(scales + g, positive_scales(x, w, 32, 4, codes));
    }
}

CBQ_FN void iq2_xxs_fit_group(const cbq_neighbours *t, const weighted *b, int group, float scale, iq2_groups *to) {
    const int at = 32 * group;
    uint16_t words[4] = {0, 0, 0, 0};
    iq2_search(t, b, at, 4, 6, scale * 3, words, &scale);
    if (scale > 0) {
        for (int k = 0; k < 4; k++) words[k] = (uint16_t)iq2_word_at(t, scale, b->x + at + 8 * k, b->root + at + 8 * k);
        scale = iq2_fitted_scale(words, 4, b->w + at, b->wx + at, scale);
    }
    iq2_keep_group(t, b, group, 4, words, scale, to);
}

CBQ_FN void iq2_xxs_finish(const cbq_neighbours *t, const weighted *b, const float scales[8], uint8_t *out) {
    iq2_groups fitted = {0};
    uint8_t codes[8];
    for (int group = 0; group < 8; group++)
        if (largest(b->x + 32 * group, 32) >= 1e-15f && scales[group] * 3 > 0) iq2_xxs_fit_group(t, b, group, scales[group], &fitted);
    if (fitted.largest_scale == 0) {
        memset(out, 0, sizeof(cbq_iq2_xxs_block));
        return;
    }
    const float d = fitted.largest_scale / 31;
    iq2_scale_codes(fitted.scales, 8, d, codes);
    cbq_iq2_xxs_pack((cbq_iq2_xxs_block *)out, fitted.rows, fitted.signs, codes, cbq_f32_to_f16(d));
}

static int encode_iq2_xxs(const cbq_encode_args *a) {
    const cbq_neighbours *t = cbq_neighbours_of(CBQ_GRID_IQ2_XXS);
    if (!t) return -1;
    float sums[CBQ_LANES], scales[8 * IQ2_XXS_AT_ONCE];
    weighted b[IQ2_XXS_AT_ONCE];
    for (int64_t i = 0; i < a->n; i += IQ2_XXS_AT_ONCE) {
        superblock s[IQ2_XXS_AT_ONCE];
        if (i % CBQ_LANES == 0) sums_of_squares(a->x + 256 * i, a->n - i, sums);
        for (int k = 0; k < IQ2_XXS_AT_ONCE; k++) {
            const int64_t place = i + k < a->n ? i + k : a->n - 1; /* the last one twice, where their number is odd */
            s[k] = superblock_at(a, sizeof(cbq_iq2_xxs_block), place, sums[place % CBQ_LANES]);
            iq2_xxs_take(s + k, b + k);
        }
        iq2_xxs_free_scales(b, scales);
        for (int k = 0; k < IQ2_XXS_AT_ONCE && i + k < a->n; k++) iq2_xxs_finish(t, b + k, scales + 8 * k, s[k].out);
    }
    return 0;
}
