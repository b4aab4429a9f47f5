/* q4_1 and q5_1 without an importance matrix: the least element is the minimum, the largest the last code. */
#pragma once
#include "largest.h"

/* The least and the largest of 32 elements. Where zeros of both signs compete, the first in order wins, as it does in the
   reference: a minimum of -0.0 and one of 0.0 are different bytes. */
CBQ_FN float first_extreme(const float *x, float extreme) {
    for (int i = 0; i < 32; i += CBQ_LANES) {
        uint32_t at = m_bits(m_eq(f_ld(x + i), f_set1(extreme)));
        if (at) return x[i + __builtin_ctz(at)];
    }
    return extreme;
}

typedef struct { float d, min; } cbq_range;

CBQ_FN cbq_range range_codes(const float *x, int most, uint8_t codes[32]) {
    F low = f_ld(x), high = low;
    for (int i = CBQ_LANES; i < 32; i += CBQ_LANES) {
        low = f_min(f_ld(x + i), low);
        high = f_max(f_ld(x + i), high);
    }
    float min = first_extreme(x, f_smallest(low)), d = (f_largest(high) - min) / (float)most;
    F inverse = f_set1(inverse_or_zero(d)), least = f_set1(min), half = f_set1(0.5f);
    for (int i = 0; i < 32; i += CBQ_LANES) {
        I code = f_to_i(f_add(f_mul(f_sub(f_ld(x + i), least), inverse), half));
        i_st_u8(codes + i, i_min(i_set1(most), code));
    }
    return (cbq_range){d, min};
}
