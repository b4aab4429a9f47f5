/* q3_k */
#pragma once
#include "shared/largest.h"
#include "shared/refined_codes.h"
#include "shared/signed_search.h"
#include "shared/weights.h"
#include "tiles.h"

/* Scales of sixteen groups as integers 0 .. 63 under the one of largest magnitude, which becomes 0. */
CBQ_FN uint16_t q3_k_scales(const float scale[16], uint8_t s[16]) {
    const float largest = largest_with_sign(scale, 16);
    memset(s, 0, 16);
    if (largest == 0) return 0;
    float inverse = -32.0f / largest;
    /* The reference keeps the integer in a signed byte before it is clamped. */
    for (int j = 0; j < 16; j++) s[j] = (uint8_t)(cbq_clamp((int8_t)cbq_nearest(inverse * scale[j]), -32, 31) + 32);
    return cbq_f32_to_f16(1 / inverse);
}

static void q3_k_plain(const cbq_encode_tile *t) {
    cbq_refined fits;
    refine_tile(t->x, &fits);
    for (int b = 0; b < CBQ_TILE_BLOCKS; b++) {
        float scale[16];
        uint8_t codes[256], s[16];
        for (int j = 0; j < 16; j++) {
            int g = 16 * b + j;
            scale[j] = !fits.zero[g] && fits.l2[g] > 0 ? fits.xl[g] / fits.l2[g] : 0;
        }
        uint16_t bits = q3_k_scales(scale, s);
        float d = cbq_f16_to_f32(bits);
        for (int j = 0; j < 16; j++) {
            int g = 16 * b + j;
            float group_d = d * (float)(s[j] - 32);
            if (group_d != 0) signed_group_codes(t->x + 16 * g, 16, group_d, 0, 4, codes + 16 * j);
            else
                for (int i = 0; i < 16; i++) codes[16 * j + i] = fits.zero[g] ? 0 : (uint8_t)((int)fits.code[g][i] + 4);
        }
        cbq_q3_k_pack((cbq_q3_k_block *)t->out + b, codes, s, bits);
    }
}

static void q3_k_weighted(const cbq_encode_tile *t) {
    float x[16 * CBQ_PAIR] __attribute__((aligned(64))), w[16 * CBQ_PAIR] __attribute__((aligned(64))), sigma2[CBQ_LANES];
    float weights[CBQ_TILE_BLOCKS * 256] __attribute__((aligned(64)));
    float scale[CBQ_TILE_BLOCKS * 16], inverse[CBQ_TILE_BLOCKS * 16], sums[CBQ_TILE_BLOCKS * 16];
    cbq_signed_fit fit, outer;
    f_st_f32(sigma2, f_div(f_mul(f_set1(2), f_sums_of_squares(t->x, 256, 256)), f_set1(256)));
    for (int b = 0; b < CBQ_TILE_BLOCKS; b++) weights_of(t->x + 256 * b, t->importance[b], sigma2[b], 256, weights + 256 * b);
    for (int g = 0; g < CBQ_TILE_BLOCKS * 16; g += CBQ_PAIR) {
        groups_to_lanes(t->x + 16 * g, 16, 2, x);
        groups_to_lanes(weights + 16 * g, 16, 2, w);
        sums_of_groups(w, 16, 2, sums + g);
        signed_search(x, w, 16, 4, 2, &fit);
        memcpy(scale + g, fit.scale, sizeof fit.scale);
        memcpy(inverse + g, fit.inverse, sizeof fit.inverse);
    }
    columns_to_lanes(scale, 16, x); /* now the sixteen scales of a superblock are a group, with one to a lane */
    columns_to_lanes(sums, 16, w);
    signed_search(x, w, 16, 32, 1, &outer);
    for (int b = 0; b < CBQ_TILE_BLOCKS; b++) {
        uint8_t codes[256], s[16];
        signed_group_codes(scale + 16 * b, 16, 0, outer.inverse[b], 32, s);
        uint16_t bits = cbq_f32_to_f16(outer.scale[b]);
        float d = cbq_f16_to_f32(bits);
        for (int j = 0; j < 16; j++)
            signed_group_codes(t->x + 256 * b + 16 * j, 16, d * (float)(s[j] - 32), inverse[16 * b + j], 4, codes + 16 * j);
        cbq_q3_k_pack((cbq_q3_k_block *)t->out + b, codes, s, bits);
    }
}
static int encode_q3_k(const cbq_encode_args *a) { return encode_tiles(a, 256, sizeof(cbq_q3_k_block), a->importance ? q3_k_weighted : q3_k_plain); }
