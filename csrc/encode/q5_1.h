/* q5_1 */
#pragma once
#include "shared/min_blocks.h"
#include "shared/range_codes.h"

static void q5_1_weighted(const cbq_encode_tile *t) {
    cbq_min_fit fit;
    uint8_t codes[32];
    fit_weighted_blocks(t, 31, &fit);
    for (int b = 0; b < CBQ_PAIR; b++) {
        min_group_codes(t->x + 32 * b, 32, 0, 0, fit.inverse[b], fit.low[b], 31, codes);
        cbq_q5_1_pack((cbq_q5_1_block *)t->out + b, codes, u8_bits(codes, 4), cbq_f32_to_f16(fit.scale[b]), cbq_f32_to_f16(fit.min[b]));
    }
}

static int encode_q5_1(const cbq_encode_args *a) {
    uint8_t codes[32];
    if (a->importance) return encode_weighted_rows(a, sizeof(cbq_q5_1_block), q5_1_weighted);
    for (int64_t b = 0; b < a->n; b++) {
        cbq_range r = range_codes(a->x + 32 * b, 31, codes);
        cbq_q5_1_pack((cbq_q5_1_block *)a->out + b, codes, u8_bits(codes, 4), cbq_f32_to_f16(r.d), cbq_f32_to_f16(r.min));
    }
    return 0;
}
