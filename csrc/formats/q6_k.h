/* q6_k: 256 elements in 210 bytes, sixteen groups of 16. Layout: ggml's block_q6_K.
     0  ql      128 bytes: element i = 128 h + 32 j + l has its low 4 bits in nibble j div 2 of byte 64 h + 32 (j mod 2) + l
   128  qh      64 bytes: its high 2 bits are bits 2j, 2j+1 of byte 32 h + l
   192  scales  16 signed bytes
   208  d       f16
   y = (d * s) * (q - 32) */
#include "shared/pairs.h"
#include "shared/nibbles.h"
#include "shared/fields.h"
typedef struct { uint8_t ql[128], qh[64], scales[16], d[2]; } cbq_q6_k_block;

CBQ_FN W cbq_q6_k_codes(const cbq_q6_k_block *b, uint32_t r, uint32_t o) {
    uint32_t h = r / 4, j = r % 4;
    W low = w_bits(w_ld(b->ql + 64 * h + 32 * (j % 2), o, 2), 4 * (j / 2), 4, 0);
    return low | w_bits(w_ld(b->qh + 32 * h, o, 2), 2 * j, 2, 4);
}
CBQ_FN float cbq_q6_k_d(const cbq_q6_k_block *b) { return w_f16(b->d); }
CBQ_FN uint32_t cbq_q6_k_s4(const cbq_q6_k_block *b, uint32_t k) { return cbq_u32(b->scales + 4 * k, 2); }
CBQ_FN void cbq_q6_k_pack(cbq_q6_k_block *b, const uint8_t codes[256], const int8_t s[16], uint16_t d) {
    uint8_t high[256];
    for (int h = 0; h < 2; h++) cbq_pack_nibbles(b->ql + 64 * h, codes + 128 * h, 64);
    for (int i = 0; i < 256; i++) high[i] = codes[i] >> 4;
    cbq_pack_pairs(b->qh, high);
    memcpy(b->scales, s, 16);
    memcpy(b->d, &d, 2);
}
CBQ_FN void cbq_q6_k_write(cbq_q6_k_block *b, const cbq_fields *f) { cbq_q6_k_pack(b, f->codes, (const int8_t *)f->s, f->d); }

#define CBQ_STORE_q6_k FREE(0, 63), F16(1), STEPS(-128, 127, 1, 0)
#define CBQ_FORMAT_q6_k(BLOCK, PLAIN) BLOCK(q6_k, 14, 256, 210, 16, LINEAR(32, 6), GROUPS, NOMIN, 0, "6-bit codes, 8-bit scales of 16")
