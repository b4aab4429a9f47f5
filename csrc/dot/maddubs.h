/* The sums of a step on vpmaddubsw: products of unsigned codes and signed bytes of x, added in pairs, in int16. A pair is at
   most 2 * 127 * (2^bits - 1), so a sum of so many pairs fits before it is widened:
     4 bits 8 (30 480)   5 bits 4 (31 496)   6 bits 2 (32 004)   7 bits 1 (32 258)
   8 bits without their bias: a magnitude of at most 128 times x with the code's sign, 2 * 128 * 127 = 32 512. */
#pragma once
#include "quads16.h"
#define CBQ_DOT_BY_BITS 1
#define CBQ_WIDE_IS_SIGNED 1

CBQ_FN I dot_codes(I sum, I codes, I x, int bits) {
    if (bits == 8) {
        codes = unbiased(codes);
        x = with_signs(x, signs_of(codes));
        codes = magnitude(codes);
    }
    return i_add(sum, widen_pairs(pairs_of(codes, x)));
}

CBQ_FN void quads_q8(I *sum, const uint8_t *codes, const uint8_t *x, int64_t x_stride, int m, int quads, int bits) {
    const int fit = bits <= 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1, run = fit < quads ? fit : quads;
    CBQ_UNROLL_ALL
    for (int q0 = 0; q0 < quads; q0 += run) {
        I pairs[CBQ_INT_M * V];
        CBQ_UNROLL_ALL
        for (int q = q0; q < q0 + run; q++) {
            I c[V];
            SIGNS signs[V];
            CBQ_UNROLL_ALL
            for (int v = 0; v < V; v++) {
                c[v] = i_load(codes + QUAD * q + QUAD / V * v);
                if (bits < 8) continue;
                c[v] = unbiased(c[v]);
                signs[v] = signs_of(c[v]);
                c[v] = magnitude(c[v]);
            }
            CBQ_UNROLL_ALL
            for (int i = 0; i < m; i++) {
                I xs = i_set1((int32_t)cbq_u32(x + i * x_stride + 4 * q, 1));
                CBQ_UNROLL_ALL
                for (int v = 0; v < V; v++) {
                    I p = pairs_of(c[v], bits < 8 ? xs : with_signs(xs, signs[v]));
                    pairs[i * V + v] = q == q0 ? p : add_pairs(pairs[i * V + v], p);
                }
            }
        }
        CBQ_UNROLL_ALL
        for (int i = 0; i < m * V; i++) sum[i] = i_add(sum[i], widen_pairs(pairs[i]));
    }
}
