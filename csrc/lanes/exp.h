/* exp, in the words of the other files of this folder; include after common.h. */
#pragma once

/* n = x / ln 2 to the nearest integer, r = x - n ln 2 in two parts of ln 2, e^r = 1 + r + r^2 P(r), then times 2^n.
   - 355/512 has nine bits and n eight: n * 355/512 is exact, and so is the difference with x, which is near it.
   - P has degree 4. Its error on |r| <= ln 2 / 2 is 0.05 units in the last place of e^r; the coefficients are a fit of our own
     (least squares, reweighted until the error is level), rounded to float32.
   - 2^n goes on in two halves, each a normal float: the first product is exact, the second rounds once, also where the result
     is subnormal. Where a caller has subnormal floats flushed, results below 2^-126 are 0.
   At most 2 units in the last place (measured: 1.01, on every float32 and with or without a fused f_fma); -inf and what is below
   -104 give 0, what is above 88.7228 infinity, NaN gives NaN, and 0 exactly 1. */
CBQ_FN F f_exp(F a) {
    const F low = f_set1(-104.0f), high = f_set1(89.0f);
    F x = f_min(high, f_max(low, a)); /* of a NaN both give the second operand, which is it */
    F shifted = f_fma(x, f_set1(0x1.715476p+0f), f_set1(CBQ_ROUNDER));
    F n = f_sub(shifted, f_set1(CBQ_ROUNDER));
    F r = f_fnma(n, f_set1(-0x1.bd0106p-13f), f_fnma(n, f_set1(355.0f / 512.0f), x));
    F p = f_set1(0x1.6a23cep-10f);
    p = f_fma(p, r, f_set1(0x1.123a20p-7f));
    p = f_fma(p, r, f_set1(0x1.5558f2p-5f));
    p = f_fma(p, r, f_set1(0x1.555492p-3f));
    p = f_fma(p, r, f_set1(0x1.fffffcp-2f));
    p = f_add(f_set1(1.0f), f_fma(p, f_mul(r, r), r));
    /* n is the lowest bits of `shifted`; with 254 more it is 103 .. 382, or anything where x is NaN, and a half of it is an
       exponent's field. */
    I both = i_and(i_add(i_sub(i_of_bits(shifted), i_of_bits(f_set1(CBQ_ROUNDER))), i_set1(254)), i_set1(511));
    I half = i_shr(both, 1), rest = i_sub(both, half);
    return f_mul(f_mul(p, f_of_bits(i_shl(half, 23))), f_of_bits(i_shl(rest, 23)));
}
