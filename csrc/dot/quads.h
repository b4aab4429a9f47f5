/* The sums of a step on instructions that add products to int32 at once: dot_bytes (four bytes a lane) and dot_pairs (two
   16-bit numbers a lane). */
#pragma once
#include "quads16.h"

CBQ_FN I dot_codes(I sum, I codes, I x, int bits) { (void)bits; return dot_bytes(sum, codes, x); }

CBQ_FN void quads_q8(I *sum, const uint8_t *codes, const uint8_t *x, int64_t x_stride, int m, int quads, int bits) {
    (void)bits;
    CBQ_UNROLL_ALL
    for (int q = 0; q < quads; q++) {
        I c[V];
        CBQ_UNROLL_ALL
        for (int v = 0; v < V; v++) c[v] = i_load(codes + QUAD * q + QUAD / V * v);
        CBQ_UNROLL_ALL
        for (int i = 0; i < m; i++) {
            I xs = i_set1((int32_t)cbq_u32(x + i * x_stride + 4 * q, 1));
            CBQ_UNROLL_ALL
            for (int v = 0; v < V; v++) sum[i * V + v] = dot_bytes(sum[i * V + v], c[v], xs);
        }
    }
}
