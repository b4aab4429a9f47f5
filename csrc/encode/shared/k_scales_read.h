/* q4_k and q5_k: eight groups of 32 under 6-bit scales and minimums. */
#pragma once
#include "min_groups.h"

/* The scales as a decoder will read them from the twelve bytes: larger ones than 63 spill over there, as in the reference. */
CBQ_FN void read_k_scales(const cbq_min_scales *scales, uint8_t s[8], uint8_t m[8]) {
    uint8_t packed[12];
    cbq_k_pack_scales(packed, scales->s, scales->m);
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t s4 = cbq_k_scale4(packed, half), m4 = cbq_k_min4(packed, half);
        memcpy(s + 4 * half, &s4, 4);
        memcpy(m + 4 * half, &m4, 4);
    }
}
