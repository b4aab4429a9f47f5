/* iq4_nl: CBQ_LANES blocks at a time search for their scales, then each is encoded. */
#pragma once
#include "shared/iq4_scales.h"
#include "shared/largest.h"
#include "shared/weights.h"
#include "tiles.h"

static void iq4_nl_tile(const cbq_encode_tile *tile) {
    const iq4_codebook book = iq4_load_codebook();
    iq4_groups g;
    float scales[CBQ_LANES], w[32 * CBQ_LANES], mean[CBQ_LANES];
    f_to_lanes(tile->x, 32, 32, g.x, CBQ_LANES);
    F squares = f_zero();
    for (int j = 0; j < 32 * CBQ_LANES; j += CBQ_LANES) {
        F square = f_mul(f_ld(g.x + j), f_ld(g.x + j));
        squares = f_add(squares, square);
        f_st_f32(g.w + j, square);
    }
    if (tile->importance[0]) {
        f_st_f32(mean, f_mul(squares, f_set1(2.0f / 32)));
        for (int b = 0; b < CBQ_LANES; b++) weights_of(tile->x + 32 * b, tile->importance[b], mean[b], 32, w + 32 * b);
        f_to_lanes(w, 32, 32, g.w, CBQ_LANES);
    }
    f_st_f32(scales, iq4_scales(&g, &book));
    for (int b = 0; b < CBQ_LANES; b++) {
        uint8_t codes[32];
        iq4_codes(&book, tile->x + 32 * b, inverse_or_zero(scales[b]), 32, codes);
        cbq_iq4_nl_pack((cbq_iq4_nl_block *)tile->out + b, codes, cbq_f32_to_f16(scales[b]));
    }
}

static int encode_iq4_nl(const cbq_encode_args *a) { return encode_tiles(a, 32, sizeof(cbq_iq4_nl_block), iq4_nl_tile); }
