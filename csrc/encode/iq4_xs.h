/* iq4_xs: the groups of a superblock find their scales as iq4_nl does; then these are rounded to 6 bits, and the groups
   are encoded with what is left of them. */
#pragma once
#include "shared/iq4_scales.h"
#include "shared/largest.h"
#include "shared/weights.h"
#include "tiles.h"

enum { IQ4_XS_GROUPS = 8 * CBQ_LANES }; /* of a tile */

static void iq4_xs_block(const iq4_codebook *book, const float *x, const float scales[8], cbq_iq4_xs_block *out) {
    uint8_t codes[256], rounded[8];
    float d = -largest_with_sign(scales, 8) / 32, inverse = inverse_or_zero(d);
    for (int g = 0; g < 8; g++) {
        int s = cbq_clamp(cbq_nearest(inverse * scales[g]), -32, 31);
        rounded[g] = (uint8_t)(s + 32);
        iq4_codes(book, x + 32 * g, inverse_or_zero(d * (float)s), 32, codes + 32 * g);
    }
    cbq_iq4_xs_pack(out, codes, rounded, cbq_f32_to_f16(d));
}

static void iq4_xs_tile(const cbq_encode_tile *tile) {
    const iq4_codebook book = iq4_load_codebook();
    float scales[IQ4_XS_GROUPS], mean[CBQ_LANES];
    if (tile->importance[0]) f_st_f32(mean, f_mul(f_sums_of_squares(tile->x, 256, 256), f_set1(2.0f / 256)));
    for (int first = 0; first < IQ4_XS_GROUPS; first += CBQ_LANES) {
        iq4_groups g;
        float w[32 * CBQ_LANES];
        const float *x = tile->x + 32 * first;
        f_to_lanes(x, 32, 32, g.x, CBQ_LANES);
        if (tile->importance[0]) {
            for (int lane = 0; lane < CBQ_LANES; lane++) {
                const int block = (first + lane) / 8, at = (first + lane) % 8 * 32;
                weights_of(x + 32 * lane, tile->importance[block] + at, mean[block], 32, w + 32 * lane);
            }
            f_to_lanes(w, 32, 32, g.w, CBQ_LANES);
        } else {
            for (int j = 0; j < 32 * CBQ_LANES; j += CBQ_LANES) f_st_f32(g.w + j, f_mul(f_ld(g.x + j), f_ld(g.x + j)));
        }
        f_st_f32(scales + first, iq4_scales(&g, &book));
    }
    for (int b = 0; b < CBQ_LANES; b++)
        iq4_xs_block(&book, tile->x + 256 * b, scales + 8 * b, (cbq_iq4_xs_block *)tile->out + b);
}

static int encode_iq4_xs(const cbq_encode_args *a) { return encode_tiles(a, 256, sizeof(cbq_iq4_xs_block), iq4_xs_tile); }
