/* Codes of E2M1 under a scale, as the reference finds them: of all sixteen values, in the order of their codes, the first
   whose distance from x is least. */
#pragma once

/* `values` are the magnitudes of codes 0..7 times the scale, exact. Code 8 (-0) has the distance of code 0 and never wins;
   x >= 0 (either zero) never prefers a negative value, and x < 0 has |v - x| of the magnitudes at |x|. So the magnitudes
   decide, in order, and the sign goes along but for code 0. */
CBQ_FN I e2m1_codes(F x, const F values[8]) {
    F magnitude = f_abs(x), best = f_abs(f_sub(values[0], magnitude));
    I code = i_set1(0);
    CBQ_UNROLL_ALL
    for (int i = 1; i < 8; i++) {
        F distance = f_abs(f_sub(values[i], magnitude));
        M less = m_lt(distance, best);
        best = f_select(less, distance, best);
        code = i_select(less, i_set1(i), code);
    }
    M negative = m_andnot(m_lt(x, f_zero()), m_ieq(code, i_set1(0)));
    return i_or(code, i_select(negative, i_set1(8), i_set1(0)));
}
CBQ_FN void e2m1_values(float scale, F values[8]) {
    CBQ_UNROLL_ALL
    for (int i = 0; i < 8; i++) values[i] = f_mul(f_set1(cbq_e2m1_values[i]), f_set1(scale));
}
