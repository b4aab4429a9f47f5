/* iq2_s: 256 elements in 82 bytes, sixteen groups of 16. Layout: ggml's block_iq2_s.
     0  d       f16
     2  qs      32 bytes: the low 8 bits of the grid row of elements 8 e .. 8 e + 7
    34  signs   32 bytes: bit i mod 8 of byte i div 8 is the sign of element i
    66  qh      8 bytes: bits 2 (e mod 4), +1 of byte e div 4 are the high 2 bits of row e
    74  scales  8 bytes: nibble t mod 2 of byte t div 2 is the scale s of group t
   y = (d * (s + 0.5) * 0.25) * G * sign; as integers, (d / 8) * (2 s + 1) * (+-G) */
#include "../tables/iq2_s_grid.h"
#include "shared/fields.h"
typedef struct { uint8_t d[2], qs[32], signs[32], qh[8], scales[8]; } cbq_iq2_s_block;

CBQ_FN W cbq_iq2_s_codes(const cbq_iq2_s_block *b, uint32_t r, uint32_t o) {
    uint32_t high = b->qh[r];
    W magnitudes = W_U64(e, o, cbq_iq2_s_grid[b->qs[4 * r + e] | (high >> 2 * e & 3) << 8]);
    return w_neg(magnitudes, cbq_u32(b->signs + 4 * r, 2), o);
}
CBQ_FN float cbq_iq2_s_d(const cbq_iq2_s_block *b) { return 0.125f * w_f16(b->d); }
CBQ_FN uint32_t cbq_iq2_s_s4(const cbq_iq2_s_block *b, uint32_t k) {
    return 2 * cbq_spread_nibbles(cbq_u16(b->scales + 2 * k, 2)) + CBQ_B(1);
}

CBQ_FN void cbq_iq2_s_pack(cbq_iq2_s_block *b, const uint16_t rows[32], const uint8_t signs[32], const uint8_t scales[16], uint16_t d) {
    memcpy(b->d, &d, 2);
    memcpy(b->signs, signs, 32);
    for (int e = 0; e < 32; e++) b->qs[e] = (uint8_t)rows[e];
    for (int i = 0; i < 8; i++) {
        const uint16_t *four = rows + 4 * i;
        b->qh[i] = (uint8_t)(four[0] >> 8 | four[1] >> 8 << 2 | four[2] >> 8 << 4 | four[3] >> 8 << 6);
        b->scales[i] = (uint8_t)(scales[2 * i] | scales[2 * i + 1] << 4);
    }
}
CBQ_FN void cbq_iq2_s_write(cbq_iq2_s_block *b, const cbq_fields *f) {
    memcpy(b->d, &f->d, 2);
    for (int i = 0; i < 8; i++) b->scales[i] = (uint8_t)(f->s[2 * i] | f->s[2 * i + 1] << 4);
}

#define CBQ_STORE_iq2_s KEPT, F16(0.125), STEPS(0, 15, 2, 1)
#define CBQ_FORMAT_iq2_s(BLOCK, PLAIN) BLOCK(iq2_s, 22, 256, 82, 16, SIGNED(7), GROUPS, NOMIN, 0, "grid of 8 magnitudes, signs, 4-bit scales of 16")
