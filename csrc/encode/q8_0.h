/* q8_0: the scale takes the largest magnitude to 127. An importance matrix changes nothing. */
#pragma once
#include "encode.h"
#include "shared/largest.h"

static int encode_q8_0(const cbq_encode_args *a) {
    uint8_t codes[32];
    for (int64_t b = 0; b < a->n; b++) {
        const float *x = a->x + 32 * b;
        float d = largest_magnitude(x, 32) / 127;
        F inverse = f_set1(inverse_or_zero(d));
        I code[CBQ_OF_32];
        for (int i = 0; i < CBQ_OF_32; i++) code[i] = f_round_away(f_mul(f_ld(x + i * CBQ_LANES), inverse));
        i_st_32_u8(codes, code);
        cbq_q8_0_pack((cbq_q8_0_block *)a->out + b, codes, cbq_f32_to_f16(d));
    }
    return 0;
}
