/* q6_k: the importance matrix is the weight as it is; without one, x^2 is. */
#pragma once
#include "shared/largest.h"
#include "shared/signed_search.h"
#include "tiles.h"

/* Sixteen scales as signed bytes under the one of largest magnitude, and that one's share; 0 where all count as zero. */
CBQ_FN int q6_k_scales(const float scale[16], int8_t s[16], uint16_t *d) {
    const float largest = largest_with_sign(scale, 16);
    if (__builtin_fabsf(largest) < 1e-15f) return 0;
    float inverse = -128.0f / largest;
    *d = cbq_f32_to_f16(1 / inverse);
    for (int j = 0; j < 16; j++) {
        int integer = cbq_nearest(inverse * scale[j]);
        s[j] = (int8_t)(integer > 127 ? 127 : integer);
    }
    return 1;
}

static void q6_k_tile(const cbq_encode_tile *t) {
    float x[16 * CBQ_PAIR] __attribute__((aligned(64))), w[16 * CBQ_PAIR] __attribute__((aligned(64)));
    float scale[CBQ_TILE_BLOCKS * 16], inverse[CBQ_TILE_BLOCKS * 16], importance[CBQ_PAIR * 16];
    cbq_signed_fit fit;
    for (int g = 0; g < CBQ_TILE_BLOCKS * 16; g += CBQ_PAIR) {
        groups_to_lanes(t->x + 16 * g, 16, 2, x);
        if (t->importance[0]) {
            for (int i = 0; i < CBQ_PAIR; i++) memcpy(importance + 16 * i, t->importance[(g + i) / 16] + (g + i) % 16 * 16, 64);
            groups_to_lanes(importance, 16, 2, w);
        } else
            for (int i = 0; i < 16 * CBQ_PAIR; i += CBQ_LANES) f_st_f32(w + i, f_mul(f_ld(x + i), f_ld(x + i)));
        signed_search(x, w, 16, 32, 2, &fit);
        memcpy(scale + g, fit.scale, sizeof fit.scale);
        memcpy(inverse + g, fit.inverse, sizeof fit.inverse);
    }
    for (int b = 0; b < CBQ_TILE_BLOCKS; b++) {
        cbq_q6_k_block *block = (cbq_q6_k_block *)t->out + b;
        uint8_t codes[256];
        int8_t s[16];
        uint16_t bits;
        if (!q6_k_scales(scale + 16 * b, s, &bits)) {
            memset(block, 0, sizeof *block);
            continue;
        }
        float d = cbq_f16_to_f32(bits);
        for (int j = 0; j < 16; j++)
            signed_group_codes(t->x + 256 * b + 16 * j, 16, d * (float)s[j], inverse[16 * b + j], 32, codes + 16 * j);
        cbq_q6_k_pack(block, codes, s, bits);
    }
}
static int encode_q6_k(const cbq_encode_args *a) { return encode_tiles(a, 256, sizeof(cbq_q6_k_block), q6_k_tile); }
