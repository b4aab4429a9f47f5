/* iq2_xs: 256 elements in 74 bytes, sixteen groups of 16. Layout: ggml's block_iq2_xs.
     0  d       f16
     2  qs      32 u16: bits 0..8 a grid row, bits 9..15 its signs (the eighth sign is their parity)
    66  scales  8 bytes: nibble t mod 2 of byte t div 2 is the scale s of group t
   y = (d * (s + 0.5) * 0.25) * G * sign; as integers, (d / 8) * (2 s + 1) * (+-G) */
#include "../tables/iq2_xs_grid.h"
#include "shared/fields.h"
typedef struct { uint8_t d[2], qs[64], scales[8]; } cbq_iq2_xs_block;

CBQ_FN W cbq_iq2_xs_codes(const cbq_iq2_xs_block *b, uint32_t r, uint32_t o) {
    const uint8_t *p = b->qs + 8 * r;
    uint32_t signs = cbq_odd_bytes(cbq_u32(p, 2), cbq_u32(p + 4, 2)) >> 1 & CBQ_B(127);
    return w_neg(W_U64(e, o, cbq_iq2_xs_grid[cbq_u16(p + 2 * e, 2) & 511]), cbq_signs7(signs), o);
}
CBQ_FN float cbq_iq2_xs_d(const cbq_iq2_xs_block *b) { return 0.125f * w_f16(b->d); }
CBQ_FN uint32_t cbq_iq2_xs_s4(const cbq_iq2_xs_block *b, uint32_t k) {
    return 2 * cbq_spread_nibbles(cbq_u16(b->scales + 2 * k, 2)) + CBQ_B(1);
}

/* Rows and signs of 8 elements each; the top sign is that of the others' parity and left out. */
CBQ_FN void cbq_iq2_xs_pack(cbq_iq2_xs_block *b, const uint16_t rows[32], const uint8_t signs[32], const uint8_t scales[16], uint16_t d) {
    memcpy(b->d, &d, 2);
    for (int e = 0; e < 32; e++) {
        uint16_t q = (uint16_t)(rows[e] | (signs[e] & 127) << 9);
        memcpy(b->qs + 2 * e, &q, 2);
    }
    for (int i = 0; i < 8; i++) b->scales[i] = (uint8_t)(scales[2 * i] | scales[2 * i + 1] << 4);
}
CBQ_FN void cbq_iq2_xs_write(cbq_iq2_xs_block *b, const cbq_fields *f) {
    memcpy(b->d, &f->d, 2);
    for (int i = 0; i < 8; i++) b->scales[i] = (uint8_t)(f->s[2 * i] | f->s[2 * i + 1] << 4);
}

#define CBQ_STORE_iq2_xs KEPT, F16(0.125), STEPS(0, 15, 2, 1)
#define CBQ_FORMAT_iq2_xs(BLOCK, PLAIN) BLOCK(iq2_xs, 17, 256, 74, 16, SIGNED(7), GROUPS, NOMIN, 1, "grid of 8 magnitudes, signs, 4-bit scales of 16")
