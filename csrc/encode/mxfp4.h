/* mxfp4: the scale is the power of two of the largest magnitude, less two (the exponent of E2M1's largest value). An
   importance matrix changes nothing. */
#pragma once
#include "encode.h"
#include "shared/e2m1_codes.h"
#include "shared/largest.h"
#include "shared/mxfp4_scale.h"

static int encode_mxfp4(const cbq_encode_args *a) {
    uint8_t codes[32];
    for (int64_t b = 0; b < a->n; b++) {
        const float *x = a->x + 32 * b;
        cbq_mxfp4_block *block = (cbq_mxfp4_block *)a->out + b;
        block->x[0] = mxfp4_scale(largest_magnitude(x, 32));
        cbq_midpoints midpoints = e2m1_midpoints(cbq_mxfp4_d(block));
        if (block->x[0] >= 253) { /* four times the scale is infinite: of no use, but above its midpoint all the same */
            for (int i = 0; i < 32; i++) codes[i] = e2m1_scan(x[i], cbq_mxfp4_d(block));
            cbq_mxfp4_pack(block, codes, block->x[0]);
            continue;
        }
        I code[CBQ_OF_32];
        for (int i = 0; i < CBQ_OF_32; i++) code[i] = e2m1_codes(f_ld(x + i * CBQ_LANES), midpoints);
        i_st_32_u8(codes, code);
        cbq_mxfp4_pack(block, codes, block->x[0]);
    }
    return 0;
}
