/* q2_k: 256 elements in 84 bytes, sixteen groups of 16. Layout: ggml's block_q2_K.
     0  scales  16 bytes: low nibble the scale s, high nibble the minimum m of a group
    16  qs      64 bytes: element i = 128 h + 32 j + l is bits 2j, 2j+1 of byte 32 h + l
    80  d       f16
    82  dmin    f16
   y = (d * s) * q - (dmin * m) */
#include "shared/pairs.h"
#include "shared/fields.h"
typedef struct { uint8_t scales[16], qs[64], d[2], dmin[2]; } cbq_q2_k_block;

CBQ_FN W cbq_q2_k_codes(const cbq_q2_k_block *b, uint32_t r, uint32_t o) {
    return w_bits(w_ld(b->qs + 32 * (r / 4), o, 4), 2 * (r % 4), 2, 0);
}
CBQ_FN float cbq_q2_k_d(const cbq_q2_k_block *b) { return w_f16_of2(b->d, 0); }
CBQ_FN float cbq_q2_k_dmin(const cbq_q2_k_block *b) { return w_f16_of2(b->d, 1); }
CBQ_FN uint32_t cbq_q2_k_s4(const cbq_q2_k_block *b, uint32_t k) { return cbq_u32(b->scales + 4 * k, 4) & CBQ_B(15); }
CBQ_FN uint32_t cbq_q2_k_m4(const cbq_q2_k_block *b, uint32_t k) { return cbq_u32(b->scales + 4 * k, 4) >> 4 & CBQ_B(15); }
CBQ_FN void cbq_q2_k_pack(cbq_q2_k_block *b, const uint8_t codes[256], const uint8_t s[16], const uint8_t m[16], uint16_t d, uint16_t dmin) {
    for (int g = 0; g < 16; g++) b->scales[g] = (uint8_t)(s[g] | m[g] << 4);
    cbq_pack_pairs(b->qs, codes);
    memcpy(b->d, &d, 2);
    memcpy(b->dmin, &dmin, 2);
}
CBQ_FN void cbq_q2_k_write(cbq_q2_k_block *b, const cbq_fields *f) { cbq_q2_k_pack(b, f->codes, f->s, f->m, f->d, f->dmin); }

#define CBQ_STORE_q2_k FREE(0, 3), F16(1), STEPS(0, 15, 1, 0), MINIMUMS(15)
#define CBQ_FORMAT_q2_k(BLOCK, PLAIN) BLOCK(q2_k, 10, 256, 84, 16, LINEAR(0, 2), GROUPS, MIN_GROUPS, 0, "2-bit codes, 4-bit scales and minimums of 16")
