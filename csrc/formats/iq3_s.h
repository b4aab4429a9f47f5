/* iq3_s: 256 elements in 110 bytes, eight groups of 32. Layout: ggml's block_iq3_s.
     0  d       f16
     2  qs      64 bytes: the low 8 bits of the grid row of elements 4 c .. 4 c + 3
    66  qh      8 bytes: bit c mod 8 of byte c div 8 is the ninth bit of row c
    74  signs   32 bytes: bit i mod 8 of byte i div 8 is the sign of element i
   106  scales  4 bytes: nibble g mod 2 of byte g div 2 is the scale s of group g
   y = (d * (2 s + 1)) * G * sign */
#include "../tables/iq3_s_grid.h"
#include "shared/fields.h"
typedef struct { uint8_t d[2], qs[64], qh[8], signs[32], scales[4]; } cbq_iq3_s_block;

CBQ_FN W cbq_iq3_s_codes(const cbq_iq3_s_block *b, uint32_t r, uint32_t o) {
    return w_neg(W_ROWS4(cbq_iq3_s_grid, b->qs, b->qh, r, o), cbq_u32(b->signs + 4 * r, 2), o);
}
CBQ_FN float cbq_iq3_s_d(const cbq_iq3_s_block *b) { return w_f16(b->d); }
CBQ_FN uint32_t cbq_iq3_s_s4(const cbq_iq3_s_block *b, uint32_t k) {
    return 2 * cbq_spread_nibbles(cbq_u16(b->scales + 2 * k, 2)) + CBQ_B(1);
}
/* signs: of group g, bit i of signs[g] for element i; high: of group g, bit c is the ninth bit of its row c */
CBQ_FN void cbq_iq3_s_pack(cbq_iq3_s_block *b, const uint8_t low[64], const uint8_t high[8], const uint32_t signs[8],
                           const uint8_t scales[8], uint16_t d) {
    memcpy(b->d, &d, 2);
    memcpy(b->qs, low, 64);
    memcpy(b->qh, high, 8);
    memcpy(b->signs, signs, 32);
    for (int g = 0; g < 8; g += 2) b->scales[g / 2] = (uint8_t)(scales[g] | scales[g + 1] << 4);
}
CBQ_FN void cbq_iq3_s_write(cbq_iq3_s_block *b, const cbq_fields *f) {
    memcpy(b->d, &f->d, 2);
    for (int i = 0; i < 4; i++) b->scales[i] = (uint8_t)(f->s[2 * i] | f->s[2 * i + 1] << 4);
}

#define CBQ_STORE_iq3_s KEPT, F16(1), STEPS(0, 15, 2, 1)
#define CBQ_FORMAT_iq3_s(BLOCK, PLAIN) BLOCK(iq3_s, 21, 256, 110, 32, SIGNED(7), GROUPS, NOMIN, 0, "grid of 4 magnitudes, signs, 4-bit scales of 32")
