/* q2_0, tq1_0 and tq2_0: the scale is the largest magnitude, and codes are -1, 0, 1 plus one. */
#pragma once
#include "largest.h"

CBQ_FN float ternary_codes(const float *x, int n, uint8_t *codes) {
    float d = largest_magnitude(x, n);
    F inverse = f_set1(inverse_or_zero(d));
    for (int i = 0; i < n; i += 32) {
        I code[CBQ_OF_32];
        for (int k = 0; k < CBQ_OF_32; k++) code[k] = i_add(f_round_away(f_mul(f_ld(x + i + k * CBQ_LANES), inverse)), i_set1(1));
        i_st_32_u8(codes + i, code);
    }
    return d;
}
