/* iq2_xxs: 256 elements in 66 bytes, eight groups of 32. Layout: ggml's block_iq2_xxs.
     0  d  f16
     2  eight records of 8 bytes, one a group: four grid rows u8, then a u32 w: bits 7e..7e+6 are the signs of
        row e (the eighth sign is their parity), bits 28..31 the scale s
   y = (d * (s + 0.5) * 0.25) * G * sign; as integers, (d / 8) * (2 s + 1) * (+-G) */
#include "../tables/iq2_xxs_grid.h"
#include "shared/fields.h"
typedef struct { uint8_t d[2], q[64]; } cbq_iq2_xxs_block;

CBQ_FN W cbq_iq2_xxs_codes(const cbq_iq2_xxs_block *b, uint32_t r, uint32_t o) {
    const uint8_t *record = b->q + 8 * r;
    return w_neg(W_U64(e, o, cbq_iq2_xxs_grid[record[e]]), cbq_signs7(cbq_spread_septets(cbq_u32(record + 4, 2))), o);
}
CBQ_FN float cbq_iq2_xxs_d(const cbq_iq2_xxs_block *b) { return 0.125f * w_f16(b->d); }
CBQ_FN uint32_t cbq_iq2_xxs_s4(const cbq_iq2_xxs_block *b, uint32_t k) {
    const uint8_t *p = b->q + 32 * k; /* the top nibbles of four records */
    uint32_t s = p[7] >> 4 | (uint32_t)(p[15] >> 4) << 8 | (uint32_t)(p[23] >> 4) << 16 | (uint32_t)(p[31] >> 4) << 24;
    return 2 * s + CBQ_B(1);
}

/* Rows and signs of 8 elements each; the top sign is that of the others' parity and left out. */
CBQ_FN void cbq_iq2_xxs_pack(cbq_iq2_xxs_block *b, const uint16_t rows[32], const uint8_t signs[32], const uint8_t scales[8], uint16_t d) {
    memcpy(b->d, &d, 2);
    for (int g = 0; g < 8; g++) {
        uint32_t w = (uint32_t)scales[g] << 28;
        for (int e = 0; e < 4; e++) {
            b->q[8 * g + e] = (uint8_t)rows[4 * g + e];
            w |= (signs[4 * g + e] & 127u) << 7 * e;
        }
        memcpy(b->q + 8 * g + 4, &w, 4);
    }
}
CBQ_FN void cbq_iq2_xxs_write(cbq_iq2_xxs_block *b, const cbq_fields *f) {
    memcpy(b->d, &f->d, 2);
    for (int g = 0; g < 8; g++) b->q[8 * g + 7] = (uint8_t)((b->q[8 * g + 7] & 15) | f->s[g] << 4);
}

#define CBQ_STORE_iq2_xxs KEPT, F16(0.125), STEPS(0, 15, 2, 1)
#define CBQ_FORMAT_iq2_xxs(BLOCK, PLAIN) BLOCK(iq2_xxs, 16, 256, 66, 32, SIGNED(7), GROUPS, NOMIN, 1, "grid of 8 magnitudes, signs, 4-bit scales of 32")
