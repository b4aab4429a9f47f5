/* q2_0: see shared/ternary.h. An importance matrix changes nothing. */
#pragma once
#include "encode.h"
#include "shared/ternary.h"

static int encode_q2_0(const cbq_encode_args *a) {
    uint8_t codes[64];
    for (int64_t b = 0; b < a->n; b++) {
        float d = ternary_codes(a->x + 64 * b, 64, codes);
        cbq_q2_0_pack((cbq_q2_0_block *)a->out + b, codes, cbq_f32_to_f16(d));
    }
    return 0;
}
