/* q4_1 */
#pragma once
#include "encode.h"
#include "shared/range_codes.h"

static int encode_q4_1(const cbq_encode_args *a) {
    uint8_t codes[32];
    for (int64_t b = 0; b < a->n; b++) {
        cbq_range r = range_codes(a->x + 32 * b, 15, codes);
        cbq_q4_1_pack((cbq_q4_1_block *)(a->out + 20 * b), codes, cbq_f32_to_f16(r.d), cbq_f32_to_f16(r.min));
    }
    return 0;
}
