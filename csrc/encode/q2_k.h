/* q2_k */
#pragma once
#include "shared/min_groups.h"

CBQ_FN void q2_k_tile_as(const cbq_encode_tile *t, int weighted) {
    const cbq_min_format f = {.size = 16, .most = 3, .most_scale = 15,
                              .plain = {-0.5f, 0.1f, 15, 1}, .weighted = {-0.9f, 0.05f, 36, 0}, .sigma_factor = 1};
    cbq_min_fits fits;
    cbq_min_scales scales[CBQ_TILE_BLOCKS];
    uint8_t codes[256], s[16], m[16];
    fit_groups(t, f, weighted, &fits);
    fit_scales(&fits, f, weighted, scales);
    for (int b = 0; b < CBQ_TILE_BLOCKS; b++) {
        for (int j = 0; j < 16; j++) { /* one byte has both: what does not fit a nibble of it spills over */
            uint8_t both = (uint8_t)(scales[b].s[j] | scales[b].m[j] << 4);
            s[j] = both & 15, m[j] = both >> 4;
        }
        min_codes(t, b, f, &fits, &scales[b], s, m, codes);
        cbq_q2_k_pack((cbq_q2_k_block *)t->out + b, codes, s, m, scales[b].d, scales[b].dmin);
    }
}
static void q2_k_plain(const cbq_encode_tile *t) { q2_k_tile_as(t, 0); }
static void q2_k_weighted(const cbq_encode_tile *t) { q2_k_tile_as(t, 1); }
static int encode_q2_k(const cbq_encode_args *a) { return encode_tiles(a, 256, sizeof(cbq_q2_k_block), a->importance ? q2_k_weighted : q2_k_plain); }
