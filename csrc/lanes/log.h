/* Functions made of exp and a logarithm, in the words of the other files of this folder; include after exp.h. */
#pragma once

/* log(1 + u) / u for 0 <= u <= 1 (1 at 0): log(1 + u) = 2 atanh(s) with s = u / (2 + u), and atanh(s) / s = 1 + z R(z) with z = s^2 <=
   1/9. R has degree 3; its error is 4.6e-9 of the result, and the coefficients are a fit of our own (least squares, reweighted until
   the error is level), rounded to float32. At most 3 units in the last place. NaN gives NaN. */
CBQ_FN F f_log1p_over(F u) {
    F half_inverse = f_div(f_set1(2.0f), f_add(f_set1(2.0f), u)); /* 2 / (2 + u) */
    F s = f_mul(f_mul(u, f_set1(0.5f)), half_inverse), z = f_mul(s, s);
    F r = f_set1(0x1.1ef87p-3f);
    r = f_fma(r, z, f_set1(0x1.1eb612p-3f));
    r = f_fma(r, z, f_set1(0x1.99d27cp-3f));
    r = f_fma(r, z, f_set1(0x1.5555p-2f));
    return f_mul(half_inverse, f_fma(r, z, f_set1(1.0f)));
}

/* sqrt(softplus(x)) = sqrt(max(x, 0) + log(1 + e^-|x|)). With h = e^(-|x|/2) the logarithm is h^2 L, L = log(1 + h^2) / h^2; below
   zero the root is h sqrt(L), which keeps its digits down to -174, where h stops being a normal float. No x overflows. */
CBQ_FN F f_sqrt_softplus(F x) {
    F h = f_exp(f_mul(f_abs(x), f_set1(-0.5f))), u = f_mul(h, h), l = f_log1p_over(u);
    M negative = m_lt(x, f_zero());
    F root = f_sqrt(f_select(negative, l, f_fma(u, l, x)));
    return f_select(negative, f_mul(h, root), root);
}

/* 1 / (1 + e^-x), to its last digits on both sides of zero. */
CBQ_FN F f_sigmoid(F x) {
    F e = f_exp(f_neg(f_abs(x))), inverse = f_div(f_set1(1.0f), f_add(f_set1(1.0f), e));
    return f_select(m_lt(x, f_zero()), f_mul(e, inverse), inverse);
}
