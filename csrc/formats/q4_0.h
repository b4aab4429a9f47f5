/* q4_0: 32 elements in 18 bytes. Layout: ggml's block_q4_0.
     0  d   f16
     2  qs  16 bytes: low nibbles are elements 0..15, high nibbles 16..31
   y = d * (q - 8) */
#include "shared/nibbles.h"
#include "shared/fields.h"
typedef struct { uint8_t d[2], qs[16]; } cbq_q4_0_block;

CBQ_FN W cbq_q4_0_codes(const cbq_q4_0_block *b, uint32_t r, uint32_t o) { (void)r; return w_nib16(b->qs, o, 2); }
CBQ_FN float cbq_q4_0_d(const cbq_q4_0_block *b) { return w_f16(b->d); }
CBQ_FN void cbq_q4_0_pack(cbq_q4_0_block *b, const uint8_t codes[32], uint16_t d) {
    memcpy(b->d, &d, 2);
    cbq_pack_nibbles(b->qs, codes, 16);
}
CBQ_FN void cbq_q4_0_write(cbq_q4_0_block *b, const cbq_fields *f) { cbq_q4_0_pack(b, f->codes, f->d); }

#define CBQ_STORE_q4_0 FREE(0, 15), F16(1)
#define CBQ_FORMAT_q4_0(BLOCK, PLAIN) BLOCK(q4_0, 2, 32, 18, 32, LINEAR(8, 4), ONE, NOMIN, 0, "4-bit codes, one scale")
