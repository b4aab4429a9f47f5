/* q5_0 */
#pragma once
#include "shared/signed_codes.h"
#include "shared/signed_search.h"
#include "shared/weighted_rows.h"

static void q5_0_weighted(const cbq_encode_tile *t) {
    float x[32 * CBQ_PAIR] __attribute__((aligned(64))), w[32 * CBQ_PAIR] __attribute__((aligned(64)));
    cbq_signed_fit fit;
    uint8_t codes[32];
    weighted_lanes(t, x, w);
    signed_search(x, w, 32, 16, 2, &fit);
    for (int b = 0; b < CBQ_PAIR; b++) {
        signed_group_codes(t->x + 32 * b, 32, 0, fit.inverse[b], 16, codes);
        cbq_q5_0_pack((cbq_q5_0_block *)t->out + b, codes, u8_bits(codes, 4), cbq_f32_to_f16(fit.scale[b]));
    }
}

static int encode_q5_0(const cbq_encode_args *a) {
    uint8_t codes[32];
    if (a->importance) return encode_weighted_rows(a, sizeof(cbq_q5_0_block), q5_0_weighted);
    for (int64_t b = 0; b < a->n; b++) {
        float d = signed_codes(a->x + 32 * b, 16, codes);
        cbq_q5_0_pack((cbq_q5_0_block *)a->out + b, codes, u8_bits(codes, 4), cbq_f32_to_f16(d));
    }
    return 0;
}
