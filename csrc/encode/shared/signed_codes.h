/* q4_0 and q5_0 without an importance matrix: the element of largest magnitude becomes the lowest code, so that the full
   range of codes is used on its side. */
#pragma once
#include "largest.h"

/* Codes of 32 elements from 0 to 2 half - 1, and the scale. */
CBQ_FN float signed_codes(const float *x, int half, uint8_t codes[32]) {
    float d = signed_largest(x, 32) / (float)-half;
    F inverse = f_set1(inverse_or_zero(d)), middle = f_set1((float)half + 0.5f);
    for (int i = 0; i < 32; i += CBQ_LANES) {
        I code = f_to_i(f_add(f_mul(f_ld(x + i), inverse), middle));
        i_st_u8(codes + i, i_min(i_set1(2 * half - 1), code));
    }
    return d;
}
