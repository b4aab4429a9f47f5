/* q8_0: 32 elements in 34 bytes. Layout: ggml's block_q8_0.
     0  d   f16
     2  qs  32 signed bytes
   y = d * q */
#include "shared/fields.h"
typedef struct { uint8_t d[2], qs[32]; } cbq_q8_0_block;

CBQ_FN W cbq_q8_0_codes(const cbq_q8_0_block *b, uint32_t r, uint32_t o) { (void)r; return w_ld(b->qs, o, 2); }
CBQ_FN float cbq_q8_0_d(const cbq_q8_0_block *b) { return w_f16(b->d); }
CBQ_FN void cbq_q8_0_pack(cbq_q8_0_block *b, const uint8_t codes[32], uint16_t d) {
    memcpy(b->d, &d, 2);
    memcpy(b->qs, codes, 32);
}
CBQ_FN void cbq_q8_0_write(cbq_q8_0_block *b, const cbq_fields *f) { cbq_q8_0_pack(b, f->codes, f->d); }

#define CBQ_STORE_q8_0 FREE(-127, 127), F16(1)
#define CBQ_FORMAT_q8_0(BLOCK, PLAIN) BLOCK(q8_0, 8, 32, 34, 32, SIGNED(8), ONE, NOMIN, 0, "8-bit codes, one scale")
