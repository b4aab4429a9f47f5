/* The 8-bit sums of NEON, on dot_signed. */
#pragma once
#define CBQ_DOT_BY_BITS 1
#define CBQ_WIDE_IS_SIGNED 1

CBQ_FN int8x16_t signed_codes(uint8x16_t c, int bits) { return vreinterpretq_s8_u8(bits == 8 ? veorq_u8(c, vdupq_n_u8(128)) : c); }

CBQ_FN I dot_codes(I sum, I codes, I x, int bits) {
    return dot_signed(sum, signed_codes(vreinterpretq_u8_s32(codes), bits), vreinterpretq_s8_s32(x));
}

CBQ_FN void quads_q8(I *sum, const uint8_t *codes, const uint8_t *x, int64_t x_stride, int m, int quads, int bits) {
    CBQ_UNROLL_ALL
    for (int q = 0; q < quads; q++) {
        int8x16_t c[V];
        CBQ_UNROLL_ALL
        for (int v = 0; v < V; v++) c[v] = signed_codes(vld1q_u8(codes + QUAD * q + QUAD / V * v), bits);
        CBQ_UNROLL_ALL
        for (int i = 0; i < m; i++) {
            int8x16_t xs = vreinterpretq_s8_u32(vdupq_n_u32(cbq_u32(x + i * x_stride + 4 * q, 1)));
            CBQ_UNROLL_ALL
            for (int v = 0; v < V; v++) sum[i * V + v] = dot_signed(sum[i * V + v], c[v], xs);
        }
    }
}
