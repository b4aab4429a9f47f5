/* The 16-bit sums of a step, on dot_pairs. */
#pragma once

/* Codes 0 and 2 of each four, then 1 and 3, as 16-bit numbers; x has that order. */
CBQ_FN void quads_q16(I *sum, const uint8_t *codes, const uint8_t *x, int64_t x_stride, int m, int quads, int bits) {
    (void)bits;
    CBQ_UNROLL_ALL
    for (int q = 0; q < quads; q++) {
        I even[V], odd[V];
        CBQ_UNROLL_ALL
        for (int v = 0; v < V; v++) {
            I c = i_load(codes + QUAD * q + QUAD / V * v);
            even[v] = i_and(c, i_set1(0x00ff00ff));
            odd[v] = i_and(i_shift_right8(c), i_set1(0x00ff00ff));
        }
        CBQ_UNROLL_ALL
        for (int i = 0; i < m; i++) {
            const uint8_t *xs = x + i * x_stride + 8 * q;
            I x02 = i_set1((int32_t)cbq_u32(xs, 1)), x13 = i_set1((int32_t)cbq_u32(xs + 4, 1));
            CBQ_UNROLL_ALL
            for (int v = 0; v < V; v++) sum[i * V + v] = dot_pairs(dot_pairs(sum[i * V + v], even[v], x02), odd[v], x13);
        }
    }
}
