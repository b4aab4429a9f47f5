/* iq1_s: 256 elements in 50 bytes, eight groups of 32. Layout: ggml's block_iq1_s.
     0  d   f16
     2  qs  32 bytes: the low 8 bits of the grid row of elements 8 e .. 8 e + 7
    34  qh  eight u16, one a group: bits 3e..3e+2 are the high 3 bits of its row e, bits 12..14 the scale s,
            bit 15 the sign of delta: +-1/8
   y = (d * (2 s + 1)) * (G + delta); as integers, (d / 8) * (2 s + 1) * (8 G +- 1) */
#include "../tables/iq1_grid8.h"
#include "shared/fields.h"
typedef struct { uint8_t d[2], qs[32], qh[16]; } cbq_iq1_s_block;

CBQ_FN W cbq_iq1_s_codes(const cbq_iq1_s_block *b, uint32_t r, uint32_t o) {
    uint32_t h = cbq_u16(b->qh + 2 * r, 2);
    return w_addall(W_U64(e, o, cbq_iq1_grid8[b->qs[4 * r + e] | (h >> 3 * e & 7) << 8]), h & 0x8000 ? -1 : 1);
}
CBQ_FN float cbq_iq1_s_d(const cbq_iq1_s_block *b) { return 0.125f * w_f16(b->d); }
CBQ_FN uint32_t cbq_iq1_s_s4(const cbq_iq1_s_block *b, uint32_t k) {
    const uint8_t *p = b->qh + 8 * k; /* bits 4..6 of every second byte */
    uint32_t s = (p[1] >> 4 & 7u) | (p[3] >> 4 & 7u) << 8 | (p[5] >> 4 & 7u) << 16 | (p[7] >> 4 & 7u) << 24;
    return 2 * s + CBQ_B(1);
}

/* minus: the sign of delta of each group. */
CBQ_FN void cbq_iq1_s_pack(cbq_iq1_s_block *b, const uint16_t rows[32], const uint8_t minus[8], const uint8_t scales[8], uint16_t d) {
    memcpy(b->d, &d, 2);
    for (int g = 0; g < 8; g++) {
        uint16_t h = (uint16_t)(scales[g] << 12 | minus[g] << 15);
        for (int e = 0; e < 4; e++) {
            b->qs[4 * g + e] = (uint8_t)rows[4 * g + e];
            h |= (uint16_t)(rows[4 * g + e] >> 8 << 3 * e);
        }
        memcpy(b->qh + 2 * g, &h, 2);
    }
}
CBQ_FN void cbq_iq1_s_write(cbq_iq1_s_block *b, const cbq_fields *f) {
    memcpy(b->d, &f->d, 2);
    for (int g = 0; g < 8; g++) b->qh[2 * g + 1] = (uint8_t)((b->qh[2 * g + 1] & 0x8f) | f->s[g] << 4);
}

#define CBQ_STORE_iq1_s KEPT, F16(0.125), STEPS(0, 7, 2, 1)
#define CBQ_FORMAT_iq1_s(BLOCK, PLAIN) BLOCK(iq1_s, 19, 256, 50, 32, SIGNED(5), GROUPS, NOMIN, 1, "ternary grid of 8 with delta, 3-bit scales of 32")
