/* Importance weights: w = importance * sqrt(sigma2 + x^2), sigma2 the mean of x^2 (times a factor) over a row, a
   superblock or a block. */
#pragma once

/* The sum of n squares of each of CBQ_LANES pieces of x that lie `stride` apart, each in the order of its elements. */
CBQ_FN F f_sums_of_squares(const float *x, int64_t stride, int n) {
    float columns[8 * CBQ_LANES] __attribute__((aligned(64)));
    F sum = f_zero();
    for (int i = 0; i < n; i += 8) {
        f_transpose(x + i, stride, columns, CBQ_LANES);
        for (int k = 0; k < 8; k++) {
            F v = f_ld(columns + k * CBQ_LANES);
            sum = f_add(sum, f_mul(v, v));
        }
    }
    return sum;
}

CBQ_FN void weights_of(const float *x, const float *importance, float sigma2, int n, float *w) {
    for (int i = 0; i < n; i += CBQ_LANES) {
        F v = f_ld(x + i);
        f_st_f32(w + i, f_mul(f_ld(importance + i), f_sqrt(f_add(f_set1(sigma2), f_mul(v, v)))));
    }
}
