/* q4_0 */
#pragma once
#include "encode.h"
#include "shared/signed_codes.h"

static int encode_q4_0(const cbq_encode_args *a) {
    uint8_t codes[32];
    for (int64_t b = 0; b < a->n; b++) {
        float d = signed_codes(a->x + 32 * b, 8, codes);
        cbq_q4_0_pack((cbq_q4_0_block *)(a->out + 18 * b), codes, cbq_f32_to_f16(d));
    }
    return 0;
}
