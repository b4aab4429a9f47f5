/* q5_k */
#pragma once
#include "shared/k_scales_read.h"

CBQ_FN void q5_k_tile_as(const cbq_encode_tile *t, int weighted) {
    const cbq_min_format f = {.size = 32, .most = 31, .most_scale = 63,
                              .plain = {-0.5f, 0.1f, 15, 0}, .weighted = {-0.9f, 0.05f, 36, 0}, .sigma_factor = 2};
    cbq_min_fits fits;
    cbq_min_scales scales[CBQ_TILE_BLOCKS];
    uint8_t codes[256], s[8], m[8];
    fit_groups(t, f, weighted, &fits);
    fit_scales(&fits, f, weighted, scales);
    for (int b = 0; b < CBQ_TILE_BLOCKS; b++) {
        for (int j = 0; j < 8; j++) { /* q4_k lets them spill, q5_k does not */
            scales[b].s[j] = scales[b].s[j] > 63 ? 63 : scales[b].s[j];
            scales[b].m[j] = scales[b].m[j] > 63 ? 63 : scales[b].m[j];
        }
        read_k_scales(&scales[b], s, m);
        min_codes(t, b, f, &fits, &scales[b], s, m, codes);
        cbq_q5_k_pack((cbq_q5_k_block *)(t->out + 176 * b), codes, scales[b].s, scales[b].m, scales[b].d, scales[b].dmin);
    }
}
static void q5_k_plain(const cbq_encode_tile *t) { q5_k_tile_as(t, 0); }
static void q5_k_weighted(const cbq_encode_tile *t) { q5_k_tile_as(t, 1); }
static int encode_q5_k(const cbq_encode_args *a) { return encode_tiles(a, 256, 176, a->importance ? q5_k_weighted : q5_k_plain); }
