/* iq4_xs: 256 elements in 136 bytes, eight groups of 32. Layout: ggml's block_iq4_xs.
     0  d         f16
     2  scales_h  u16: bits 2g, 2g+1 are the high 2 bits of the scale of group g
     4  scales_l  4 bytes: nibble g mod 2 of byte g div 2 is its low 4 bits
     8  qs        128 bytes, 16 a group: low nibbles are its elements 0..15, high nibbles 16..31
   y = (d * (s - 32)) * C[q], C the codebook of shared/iq4_values.h */
#include "shared/iq4_values.h"
#include "shared/nibbles.h"
#include "shared/fields.h"
typedef struct { uint8_t d[2], scales_h[2], scales_l[4], qs[128]; } cbq_iq4_xs_block;

CBQ_FN W cbq_iq4_xs_codes(const cbq_iq4_xs_block *b, uint32_t r, uint32_t o) { return w_nib16(b->qs + 16 * r, o, 8); }
CBQ_FN float cbq_iq4_xs_d(const cbq_iq4_xs_block *b) { return w_f16(b->d); }
CBQ_FN uint32_t cbq_iq4_xs_s4(const cbq_iq4_xs_block *b, uint32_t k) {
    uint32_t low = cbq_spread_nibbles(cbq_u16(b->scales_l + 2 * k, 2));
    uint32_t high = cbq_spread_pairs(b->scales_h[k]);
    return cbq_sub4(low | high << 4, CBQ_B(32));
}
/* The scale of group g alone, with the 32 still in it: four at a time take less for each, one takes less than four. */
CBQ_FN uint32_t cbq_iq4_xs_s1(const cbq_iq4_xs_block *b, uint32_t g) {
    return (cbq_u32(b->scales_l, 4) >> 4 * g & 15) | (cbq_u16(b->scales_h, 2) << 4 >> 2 * g & 48);
}
/* scales: 0..63, as they are stored */
CBQ_FN void cbq_iq4_xs_pack(cbq_iq4_xs_block *b, const uint8_t codes[256], const uint8_t scales[8], uint16_t d) {
    memcpy(b->d, &d, 2);
    for (int g = 0; g < 8; g += 2) b->scales_l[g / 2] = (uint8_t)((scales[g] & 15) | scales[g + 1] << 4);
    for (int half = 0; half < 2; half++) {
        const uint8_t *s = scales + 4 * half;
        b->scales_h[half] = (uint8_t)(s[0] >> 4 | s[1] >> 4 << 2 | s[2] >> 4 << 4 | s[3] >> 4 << 6);
    }
    for (int g = 0; g < 8; g++) cbq_pack_nibbles(b->qs + 16 * g, codes + 32 * g, 16);
}
CBQ_FN void cbq_iq4_xs_write(cbq_iq4_xs_block *b, const cbq_fields *f) { cbq_iq4_xs_pack(b, f->codes, f->s, f->d); }

#define CBQ_STORE_iq4_xs BOOK, F16(1), STEPS(0, 63, 1, -32)
#define CBQ_FORMAT_iq4_xs(BLOCK, PLAIN) BLOCK(iq4_xs, 23, 256, 136, 32, TABLE(cbq_iq4_values, 1, 8), GROUPS, NOMIN, 0, "codebook of 16, 6-bit scales of 32")
