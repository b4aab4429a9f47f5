/* iq3_xxs: 256 elements in 98 bytes, eight groups of 32. Layout: ggml's block_iq3_xxs.
     0  d   f16
     2  qs  64 bytes: the grid row of elements 4 c .. 4 c + 3
    66  w   eight u32, one a group: bits 7e..7e+6 are the signs of its elements 8 e .. 8 e + 7 (the eighth is their
            parity), bits 28..31 the scale s
   y = (d * (s + 0.5) * 0.5) * G * sign; as integers, (d / 4) * (2 s + 1) * (+-G) */
#include "../tables/iq3_xxs_grid.h"
#include "shared/fields.h"
typedef struct { uint8_t d[2], qs[64], w[32]; } cbq_iq3_xxs_block;

CBQ_FN W cbq_iq3_xxs_codes(const cbq_iq3_xxs_block *b, uint32_t r, uint32_t o) {
    return w_neg(W_ROWS4(cbq_iq3_xxs_grid, b->qs, 0, r, o), cbq_signs7(cbq_spread_septets(cbq_u32(b->w + 4 * r, 2))), o);
}
CBQ_FN float cbq_iq3_xxs_d(const cbq_iq3_xxs_block *b) { return 0.25f * w_f16(b->d); }
CBQ_FN uint32_t cbq_iq3_xxs_s4(const cbq_iq3_xxs_block *b, uint32_t k) {
    const uint8_t *p = b->w + 16 * k;
    uint32_t s = p[3] >> 4 | (uint32_t)(p[7] >> 4) << 8 | (uint32_t)(p[11] >> 4) << 16 | (uint32_t)(p[15] >> 4) << 24;
    return 2 * s + CBQ_B(1);
}
/* signs: of group g, bit i of signs[g] for element i, with an even number of them in each eight */
CBQ_FN void cbq_iq3_xxs_pack(cbq_iq3_xxs_block *b, const uint8_t rows[64], const uint32_t signs[8], const uint8_t scales[8], uint16_t d) {
    memcpy(b->d, &d, 2);
    memcpy(b->qs, rows, 64);
    for (int g = 0; g < 8; g++) {
        const uint32_t s = signs[g];
        const uint32_t w = (s & 127) | (s >> 8 & 127) << 7 | (s >> 16 & 127) << 14 | (s >> 24 & 127) << 21 | (uint32_t)scales[g] << 28;
        memcpy(b->w + 4 * g, &w, 4);
    }
}
CBQ_FN void cbq_iq3_xxs_write(cbq_iq3_xxs_block *b, const cbq_fields *f) {
    memcpy(b->d, &f->d, 2);
    for (int g = 0; g < 8; g++) b->w[4 * g + 3] = (uint8_t)((b->w[4 * g + 3] & 15) | f->s[g] << 4);
}

#define CBQ_STORE_iq3_xxs KEPT, F16(0.25), STEPS(0, 15, 2, 1)
#define CBQ_FORMAT_iq3_xxs(BLOCK, PLAIN) BLOCK(iq3_xxs, 18, 256, 98, 32, SIGNED(7), GROUPS, NOMIN, 0, "grid of 4 magnitudes, signs, 4-bit scales of 32")
