/* q4_0 and q5_0 without an importance matrix: the element of largest magnitude becomes the lowest code, so that the full
   range of codes is used on its side. */
#pragma once
#include "largest.h"

/* Codes of 32 elements from 0 to 2 half - 1, and the scale. */
CBQ_FN float signed_codes(const float *x, int half, uint8_t codes[32]) {
    float d = signed_largest(x) / (float)-half;
    F inverse = f_set1(inverse_or_zero(d)), middle = f_set1((float)half + 0.5f);
    I code[CBQ_OF_32];
    for (int i = 0; i < CBQ_OF_32; i++)
        code[i] = i_min(i_set1(2 * half - 1), f_to_i(f_add(f_mul(f_ld(x + i * CBQ_LANES), inverse), middle)));
    i_st_32_u8(codes, code);
    return d;
}
