/* q4_1 */
#pragma once
#include "shared/min_blocks.h"
#include "shared/range_codes.h"

static void q4_1_weighted(const cbq_encode_tile *t) {
    cbq_min_fit fit;
    uint8_t codes[32];
    fit_weighted_blocks(t, 15, &fit);
    for (int b = 0; b < CBQ_PAIR; b++) {
        min_group_codes(t->x + 32 * b, 32, 0, 0, fit.inverse[b], fit.low[b], 15, codes);
        cbq_q4_1_pack((cbq_q4_1_block *)t->out + b, codes, cbq_f32_to_f16(fit.scale[b]), cbq_f32_to_f16(fit.min[b]));
    }
}

static int encode_q4_1(const cbq_encode_args *a) {
    uint8_t codes[32];
    if (a->importance) return encode_weighted_rows(a, sizeof(cbq_q4_1_block), q4_1_weighted);
    for (int64_t b = 0; b < a->n; b++) {
        cbq_range r = range_codes(a->x + 32 * b, 15, codes);
        cbq_q4_1_pack((cbq_q4_1_block *)a->out + b, codes, cbq_f32_to_f16(r.d), cbq_f32_to_f16(r.min));
    }
    return 0;
}
