/* q3_k: 256 elements in 110 bytes, sixteen groups of 16. Layout: ggml's block_q3_K.
     0  hmask   32 bytes: bit g of byte l is the third bit of element 32 g + l
    32  qs      64 bytes: element i = 128 h + 32 j + l is bits 2j, 2j+1 of byte 32 h + l
    96  scales  12 bytes: sixteen 6-bit scales. Byte k = 0..7: low nibble the low 4 bits of s[k], high nibble those of
                s[k + 8]; byte 8 + k, k = 0..3: from bit 0 up the high 2 bits of s[k], s[k + 4], s[k + 8], s[k + 12]
   108  d       f16
   y = (d * (s - 32)) * (q - 4) */
#include "shared/pairs.h"
#include "shared/fields.h"
typedef struct { uint8_t hmask[32], qs[64], scales[12], d[2]; } cbq_q3_k_block;

CBQ_FN W cbq_q3_k_codes(const cbq_q3_k_block *b, uint32_t r, uint32_t o) {
    return w_bits(w_ld(b->qs + 32 * (r / 4), o, 2), 2 * (r % 4), 2, 0) | w_bits(w_ld(b->hmask, o, 2), r, 1, 2);
}
CBQ_FN float cbq_q3_k_d(const cbq_q3_k_block *b) { return w_f16(b->d); }
CBQ_FN uint32_t cbq_q3_k_s4(const cbq_q3_k_block *b, uint32_t k) {
    uint32_t low = cbq_u32(b->scales + 4 * (k % 2), 2) >> 4 * (k / 2) & CBQ_B(15);
    uint32_t high = cbq_u32(b->scales + 8, 2) >> 2 * k & CBQ_B(3);
    return cbq_sub4(low | high << 4, CBQ_B(32));
}
/* Scales as they are stored: 0 .. 63. */
CBQ_FN void cbq_q3_k_pack(cbq_q3_k_block *b, const uint8_t codes[256], const uint8_t s[16], uint16_t d) {
    for (int l = 0; l < 32; l++) {
        uint32_t bits = 0;
        for (int g = 0; g < 8; g++) bits |= (uint32_t)(codes[32 * g + l] >> 2) << g;
        b->hmask[l] = (uint8_t)bits;
    }
    cbq_pack_pairs(b->qs, codes);
    for (int k = 0; k < 8; k++) b->scales[k] = (uint8_t)((s[k] & 15) | s[k + 8] << 4);
    for (int k = 0; k < 4; k++) b->scales[8 + k] = (uint8_t)(s[k] >> 4 | s[k + 4] >> 4 << 2 | s[k + 8] >> 4 << 4 | s[k + 12] >> 4 << 6);
    memcpy(b->d, &d, 2);
}
CBQ_FN void cbq_q3_k_write(cbq_q3_k_block *b, const cbq_fields *f) { cbq_q3_k_pack(b, f->codes, f->s, f->d); }

#define CBQ_STORE_q3_k FREE(0, 7), F16(1), STEPS(0, 63, 1, -32)
#define CBQ_FORMAT_q3_k(BLOCK, PLAIN) BLOCK(q3_k, 11, 256, 110, 16, LINEAR(4, 3), GROUPS, NOMIN, 0, "3-bit codes, 6-bit scales of 16")
