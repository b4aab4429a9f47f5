/* nvfp4: each group's scale takes its largest magnitude to 6, E2M1's largest value. An importance matrix changes nothing. */
#pragma once
#include "encode.h"
#include "shared/e2m1_codes.h"
#include "shared/largest.h"

/* Unsigned E4M3 as the reference rounds to it: halves go up, and from 248 on everything is the largest, 448. */
CBQ_FN uint8_t nvfp4_scale(float scale) {
    if (!(scale > 0)) return 0;
    uint32_t bits = cbq_as_u32(scale);
    int exponent = (int)(bits >> 23) - 120;
    if (exponent <= 0) { /* subnormal: in units of 2^-9 */
        int units = (int)(scale * 512.0f + 0.5f);
        return (uint8_t)(units > 7 ? 7 : units);
    }
    uint32_t rounded = (bits >> 20 & 7) + (bits >> 19 & 1);
    uint32_t code = ((uint32_t)exponent << 3) + rounded; /* a carry of the mantissa goes to the exponent */
    return exponent >= 15 || code >= 0x78 ? 0x7e : (uint8_t)code;
}

CBQ_FN void nvfp4_group(const float *x, float largest, float scale, uint8_t codes[16]) {
    if (!(scale > 0 && largest < 1024 * scale)) {
        for (int i = 0; i < 16; i++) codes[i] = e2m1_scan(x[i], scale);
        return;
    }
    cbq_midpoints midpoints = e2m1_midpoints(scale);
    for (int i = 0; i < 16; i += CBQ_LANES) i_st_u8(codes + i, e2m1_codes(f_ld(x + i), midpoints));
}

static int encode_nvfp4(const cbq_encode_args *a) {
    uint8_t codes[64], scales[4];
    for (int64_t b = 0; b < a->n; b++) {
        cbq_nvfp4_block *block = (cbq_nvfp4_block *)a->out + b;
        for (uint32_t g = 0; g < 4; g++) {
            const float *x = a->x + 64 * b + 16 * g;
            float largest = largest_magnitude(x, 16);
            scales[g] = block->x[g] = nvfp4_scale(largest / 6.0f);
            nvfp4_group(x, largest, cbq_nvfp4_s(block, g), codes + 16 * g);
        }
        cbq_nvfp4_pack(block, codes, scales);
    }
    return 0;
}
