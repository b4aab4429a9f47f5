/* q4_1 and q5_1 without an importance matrix: the least element is the minimum, the largest the last code. */
#pragma once
#include "largest.h"

/* The first zero of 32 elements, with its sign: where zeros of both compete for the minimum, the reference takes the first, and
   -0.0 and 0.0 are different bytes. */
CBQ_FN float first_zero(const float *x) {
    for (int i = 0; i < 32; i++)
        if (x[i] == 0) return x[i];
    return 0.0f;
}

typedef struct { float d, min; } cbq_range;

CBQ_FN cbq_range range_codes(const float *x, int most, uint8_t codes[32]) {
    F low = f_ld(x), high = low;
    for (int i = CBQ_LANES; i < 32; i += CBQ_LANES) {
        low = f_min(f_ld(x + i), low);
        high = f_max(f_ld(x + i), high);
    }
    float min = f_smallest(low), max = f_largest(high);
    if (min == 0) min = first_zero(x);
    float d = (max == min ? 0.0f : max - min) / (float)most; /* of zeros of both signs the difference could be -0.0 */
    F inverse = f_set1(inverse_or_zero(d)), least = f_set1(min), half = f_set1(0.5f);
    I code[CBQ_OF_32];
    for (int i = 0; i < CBQ_OF_32; i++)
        code[i] = i_min(i_set1(most), f_to_i(f_add(f_mul(f_sub(f_ld(x + i * CBQ_LANES), least), inverse), half)));
    i_st_32_u8(codes, code);
    return (cbq_range){d, min};
}
