/* The scales of groups as integers under one scale (ggml's make_qp_quants): the best of nine inverse scales by weighted error,
   then up to five rounds in which one integer at a time is moved to where the fit is better. One block to a lane. */
#pragma once

/* x, w and codes: n x CBQ_LANES, n at most 32. Codes are what a byte keeps of them: a negative one wraps around, as it does in the
   reference, which goes on with the byte. */
CBQ_FN F positive_scales(const float *x, const float *w, int n, int most, int32_t *codes) {
    F largest = f_zero();
    for (int i = 0; i < n; i++) largest = f_max(f_ld(x + i * CBQ_LANES), largest);
    M zero = m_lt(largest, f_set1(1e-15f));
    F inverse = f_div(f_set1((float)most), largest), scale = f_div(f_set1(1), inverse), best = f_zero();
    for (int i = 0; i < n; i++) {
        F xi = f_ld(x + i * CBQ_LANES), d = f_sub(xi, f_mul(scale, i_to_f(i_and(f_nearest(f_mul(inverse, xi)), i_set1(255)))));
        best = f_add(best, f_mul(f_mul(f_ld(w + i * CBQ_LANES), d), d));
    }
    for (int step = -4; step <= 4; step++) {
        if (step == 0) continue;
        F candidate = f_div(f_set1(0.1f * (float)step + (float)most), largest), its_scale = f_div(f_set1(1), candidate), error = f_zero();
        for (int i = 0; i < n; i++) {
            F xi = f_ld(x + i * CBQ_LANES), code = i_to_f(i_min(f_nearest(f_mul(candidate, xi)), i_set1(most)));
            F d = f_sub(xi, f_mul(its_scale, code));
            error = f_add(error, f_mul(f_mul(f_ld(w + i * CBQ_LANES), d), d));
        }
        M better = m_lt(error, best);
        best = f_select(better, error, best);
        inverse = f_select(better, candidate, inverse);
    }
    F xl = f_zero(), l2 = f_zero();
    for (int i = 0; i < n; i++) {
        F xi = f_ld(x + i * CBQ_LANES), wi = f_ld(w + i * CBQ_LANES);
        I code = i_min(f_nearest(f_mul(inverse, xi)), i_set1(most));
        F l = i_to_f(code);
        xl = f_add(xl, f_mul(f_mul(wi, xi), l));
        l2 = f_add(l2, f_mul(f_mul(wi, l), l));
        i_st(codes + i * CBQ_LANES, i_and(code, i_set1(255)));
    }
    for (int round = 0; round < 5; round++) {
        uint32_t changed = 0;
        for (int i = 0; i < n; i++) {
            F xi = f_ld(x + i * CBQ_LANES), wi = f_ld(w + i * CBQ_LANES);
            I old = i_ld(codes + i * CBQ_LANES);
            F l = i_to_f(old), rest_xl = f_sub(xl, f_mul(f_mul(wi, xi), l)), rest_l2 = f_sub(l2, f_mul(f_mul(wi, l), l));
            M can = m_andnot(m_and(m_lt(f_zero(), rest_xl), m_lt(f_zero(), rest_l2)), zero);
            I code = i_min(f_nearest(f_div(f_mul(xi, rest_l2), rest_xl)), i_set1(most));
            F new_l = i_to_f(code), new_xl = f_add(rest_xl, f_mul(f_mul(wi, xi), new_l)), new_l2 = f_add(rest_l2, f_mul(f_mul(wi, new_l), new_l));
            M better = m_lt(f_mul(f_mul(xl, xl), new_l2), f_mul(f_mul(new_xl, new_xl), l2));
            M moves = m_andnot(m_and(can, better), m_ieq(code, old));
            i_st(codes + i * CBQ_LANES, i_select(moves, i_and(code, i_set1(255)), old));
            xl = f_select(moves, new_xl, xl);
            l2 = f_select(moves, new_l2, l2);
            changed |= m_bits(moves);
        }
        if (!changed) break;
    }
    for (int i = 0; i < n; i++) i_st(codes + i * CBQ_LANES, i_select(zero, i_set1(0), i_ld(codes + i * CBQ_LANES)));
    return f_where(m_andnot(m_lt(f_zero(), l2), zero), f_div(xl, l2));
}
