/* Codes of E2M1 under a scale, as the reference finds them: of all sixteen values, in the order of their codes, the first
   whose distance from x is least. */
#pragma once

/* That is: a magnitude's code is the number of midpoints below |x|, and the sign goes along but for code 0. Code 8 (-0) has the
   distance of code 0 and never wins, and values of the other sign are further off. Distances from the two neighbours of x are
   exact (neighbours differ by a factor of two at most, and the one from 0 is |x| itself), so they compare as x and the
   midpoint do, as long as |x| is not so large beside the scale that its last bit hides the values; on a midpoint the lower
   code came first. Midpoints are products of a scale of at most four bits and three bits: exact. */
typedef struct { F at[7]; } cbq_midpoints;

CBQ_FN cbq_midpoints e2m1_midpoints(float scale) {
    cbq_midpoints m;
    CBQ_UNROLL_ALL
    for (int i = 0; i < 7; i++) m.at[i] = f_set1((cbq_e2m1_values[i] + cbq_e2m1_values[i + 1]) / 2 * scale);
    return m;
}
CBQ_FN I e2m1_codes(F x, cbq_midpoints m) {
    F magnitude = f_abs(x);
    I code = i_set1(0);
    CBQ_UNROLL_ALL
    for (int i = 0; i < 7; i++) code = i_add(code, i_where(m_lt(m.at[i], magnitude), i_set1(1)));
    M negative = m_andnot(m_lt(x, f_zero()), m_ieq(code, i_set1(0)));
    return i_or(code, i_where(negative, i_set1(8)));
}

/* The scan itself, for scales that are 0 or lost beside x. */
CBQ_FN uint8_t e2m1_scan(float x, float scale) {
    float best = __builtin_fabsf(cbq_e2m1_values[0] * scale - x);
    uint8_t code = 0;
    for (uint8_t i = 1; i < 16; i++) {
        float distance = __builtin_fabsf(cbq_e2m1_values[i] * scale - x);
        if (distance < best) best = distance, code = i;
    }
    return code;
}
