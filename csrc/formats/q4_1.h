/* q4_1: 32 elements in 20 bytes. Layout: ggml's block_q4_1.
     0  d   f16
     2  m   f16
     4  qs  16 bytes: low nibbles are elements 0..15, high nibbles 16..31
   y = d * q + m, which is d * q - dmin for dmin = -m */
#include "shared/nibbles.h"
#include "shared/fields.h"
typedef struct { uint8_t d[2], m[2], qs[16]; } cbq_q4_1_block;

CBQ_FN W cbq_q4_1_codes(const cbq_q4_1_block *b, uint32_t r, uint32_t o) { (void)r; return w_nib16(b->qs, o, 4); }
CBQ_FN float cbq_q4_1_d(const cbq_q4_1_block *b) { return w_f16_of2(b->d, 0); }
CBQ_FN float cbq_q4_1_dmin(const cbq_q4_1_block *b) { return -w_f16_of2(b->d, 1); }
CBQ_FN void cbq_q4_1_pack(cbq_q4_1_block *b, const uint8_t codes[32], uint16_t d, uint16_t m) {
    memcpy(b->d, &d, 2);
    memcpy(b->m, &m, 2);
    cbq_pack_nibbles(b->qs, codes, 16);
}
CBQ_FN void cbq_q4_1_write(cbq_q4_1_block *b, const cbq_fields *f) { cbq_q4_1_pack(b, f->codes, f->d, f->dmin); }

#define CBQ_STORE_q4_1 FREE(0, 15), F16(1), MINIMUM(-1)
#define CBQ_FORMAT_q4_1(BLOCK, PLAIN) BLOCK(q4_1, 3, 32, 20, 32, LINEAR(0, 4), ONE, MIN_ONE, 0, "4-bit codes, one scale and one minimum")
