/* The element of largest magnitude. */
#pragma once

/* The largest magnitude of n elements, a multiple of CBQ_LANES. */
CBQ_FN float largest_magnitude(const float *x, int n) {
    F largest = f_zero();
    for (int i = 0; i < n; i += CBQ_LANES) largest = f_max(f_abs(f_ld(x + i)), largest);
    return f_largest(largest);
}
/* Of 32 elements the one of largest magnitude, with its sign: the first one where several have it, and 0 for zeros of any sign. */
CBQ_FN float signed_largest(const float *x) {
    float magnitude = largest_magnitude(x, 32);
    F largest = f_set1(magnitude);
    uint32_t at = 0;
    for (int i = 0; i < 32; i += CBQ_LANES) at |= m_bits(m_eq(f_abs(f_ld(x + i)), largest)) << i;
    return magnitude > 0 && at ? x[__builtin_ctz(at)] : 0.0f;
}
/* The same of n scales. */
CBQ_FN float largest_with_sign(const float *scales, int n) {
    float largest = 0;
    for (int i = 0; i < n; i++)
        if (__builtin_fabsf(scales[i]) > __builtin_fabsf(largest)) largest = scales[i];
    return largest;
}
CBQ_FN float inverse_or_zero(float d) { return d != 0 ? 1.0f / d : 0.0f; }
