/* iq2_xxs: groups of 32, four rows of the grid each, with an even number of signs. Needs an importance matrix. */
#pragma once
#include "encode.h"
#include "shared/iq2_fit.h"
#include "shared/positive_scales.h"

/* The scales of groups without the grid, for codes 0 .. 4. */
CBQ_FN F iq2_xxs_free_scales(const weighted *b, int first) {
    float x[32 * CBQ_LANES] __attribute__((aligned(64))), w[32 * CBQ_LANES] __attribute__((aligned(64)));
    int32_t codes[32 * CBQ_LANES];
    groups_to_lanes(b->x + first, 32, 1, x);
    groups_to_lanes(b->w + first, 32, 1, w);
    return positive_scales(x, w, 32, 4, codes);
}

CBQ_FN void iq2_xxs_fit(const cbq_neighbours *t, const weighted *b, int first, iq2_fitted to) {
    const F scale = iq2_xxs_free_scales(b, first), three_codes = f_mul(scale, f_set1(3));
    const M active = m_and(m_not_lt(largest_of_groups(b->x + first, 32), f_set1(1e-15f)), m_lt(f_zero(), three_codes));
    float reach[CBQ_LANES];
    f_st_f32(reach, three_codes);
    iq2_fit(t, b, first, (iq2_shape){.n = 32, .steps = 6, .refit = 1}, reach, scale, m_bits(active), to);
}

CBQ_FN void iq2_xxs_finish(const uint16_t rows[32], const uint8_t signs[32], const float scales[8], uint8_t *out) {
    const float d = iq2_largest_scale(scales, 8) / 31;
    uint8_t codes[8];
    if (iq2_largest_scale(scales, 8) == 0) {
        memset(out, 0, sizeof(cbq_iq2_xxs_block));
        return;
    }
    iq2_scale_codes(scales, 8, d, codes);
    cbq_iq2_xxs_pack((cbq_iq2_xxs_block *)out, rows, signs, codes, cbq_f32_to_f16(d));
}

static int encode_iq2_xxs(const cbq_encode_args *a) {
    const cbq_neighbours *t = cbq_neighbours_of(CBQ_GRID_IQ2_XXS);
    if (!t) return -1;
    float sums[CBQ_LANES], scales[8 * CBQ_AT_ONCE];
    uint16_t rows[32 * CBQ_AT_ONCE];
    uint8_t signs[32 * CBQ_AT_ONCE];
    weighted b;
    for (int64_t i = 0; i < a->n; i += CBQ_AT_ONCE) {
        superblock s[CBQ_AT_ONCE];
        if (i % CBQ_LANES == 0) sums_of_squares(a->x + 256 * i, a->n - i, sums);
        for (int k = 0; k < CBQ_AT_ONCE; k++) {
            const int64_t place = i + k < a->n ? i + k : a->n - 1; /* the last one twice, where their number is odd */
            s[k] = superblock_at(a, sizeof(cbq_iq2_xxs_block), place, sums[place % CBQ_LANES]);
            weights_of(s[k].x, s[k].importance, s[k].sum_of_squares / 256, 256, b.w + 256 * k);
            take_signs(&b, 256 * k, s[k].x);
            even_signs(&b, 256 * k, s[k].x);
            weigh_magnitudes(&b, 256 * k);
        }
        for (int g = 0; g < 8 * CBQ_AT_ONCE; g += CBQ_LANES) iq2_xxs_fit(t, &b, 32 * g, (iq2_fitted){rows + 4 * g, signs + 4 * g, scales + g});
        for (int k = 0; k < CBQ_AT_ONCE && i + k < a->n; k++) iq2_xxs_finish(rows + 32 * k, signs + 32 * k, scales + 8 * k, s[k].out);
    }
    return 0;
}
