/* iq1_m: 256 elements in 56 bytes, sixteen groups of 16. Layout: ggml's block_iq1_m.
     0  qs      32 bytes: the low 8 bits of the grid row of elements 8 e .. 8 e + 7
    32  qh      16 bytes, one a group: nibble e mod 2 has the high 3 bits of row e and, in bit 3, the sign of its delta
    48  scales  four u16: bits 3 (t mod 4) .. +2 of number t div 4 are the scale s of group t; bits 12..15 are a
                nibble of the f16 scale d, the lowest one first
   y = (d * (2 s + 1)) * (G + delta), delta = +-1/8; as integers, (d / 8) * (2 s + 1) * (8 G +- 1) */
#include "../tables/iq1_grid8.h"
#include "shared/fields.h"
typedef struct { uint8_t qs[32], qh[16], scales[8]; } cbq_iq1_m_block;

CBQ_FN W cbq_iq1_m_codes(const cbq_iq1_m_block *b, uint32_t r, uint32_t o) {
    uint32_t h = cbq_u16(b->qh + 2 * r, 2);
    W grid = W_U64(e, o, cbq_iq1_grid8[b->qs[4 * r + e] | (h >> 4 * e & 7) << 8]);
    /* the delta bit of each row, on all of its 8 elements: +1 or, where it is set, -1 */
    uint32_t minus = 255 * cbq_spread_nibbles(h >> 3 & 0x1111u);
    return w_add(grid, w_addall(w_bit(~minus, o) << 1, -1));
}
CBQ_FN float cbq_iq1_m_d(const cbq_iq1_m_block *b) {
    uint32_t lo = cbq_u32(b->scales, 8), hi = cbq_u32(b->scales + 4, 4);
    uint32_t bits = (lo >> 12 & 0xfu) | (lo >> 24 & 0xf0u) | (hi >> 4 & 0xf00u) | (hi >> 16 & 0xf000u);
    return 0.125f * w_f16_bits(bits);
}
CBQ_FN uint32_t cbq_iq1_m_s4(const cbq_iq1_m_block *b, uint32_t k) {
    return 2 * cbq_spread_octals(cbq_u16(b->scales + 2 * k, 2)) + CBQ_B(1);
}

CBQ_FN void cbq_iq1_m_pack_scales(cbq_iq1_m_block *b, const uint8_t scales[16], uint16_t d) {
    for (int i = 0; i < 4; i++) {
        const uint8_t *four = scales + 4 * i;
        uint16_t s = (uint16_t)(four[0] | four[1] << 3 | four[2] << 6 | four[3] << 9 | (d >> 4 * i & 15) << 12);
        memcpy(b->scales + 2 * i, &s, 2);
    }
}
/* minus: the sign of delta of each row. */
CBQ_FN void cbq_iq1_m_pack(cbq_iq1_m_block *b, const uint16_t rows[32], const uint8_t minus[32], const uint8_t scales[16], uint16_t d) {
    for (int e = 0; e < 32; e++) b->qs[e] = (uint8_t)rows[e];
    for (int g = 0; g < 16; g++) {
        const int low = rows[2 * g] >> 8 | minus[2 * g] << 3, high = rows[2 * g + 1] >> 8 | minus[2 * g + 1] << 3;
        b->qh[g] = (uint8_t)(low | high << 4);
    }
    cbq_iq1_m_pack_scales(b, scales, d);
}
CBQ_FN void cbq_iq1_m_write(cbq_iq1_m_block *b, const cbq_fields *f) { cbq_iq1_m_pack_scales(b, f->s, f->d); }

#define CBQ_STORE_iq1_m KEPT, F16(0.125), STEPS(0, 7, 2, 1)
#define CBQ_FORMAT_iq1_m(BLOCK, PLAIN) BLOCK(iq1_m, 29, 256, 56, 16, SIGNED(5), GROUPS, NOMIN, 0, "ternary grid of 8 with delta, 3-bit scales of 16")
