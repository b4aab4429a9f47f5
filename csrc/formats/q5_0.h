/* q5_0: 32 elements in 22 bytes. Layout: ggml's block_q5_0.
     0  d   f16
     2  qh  u32: bit i is the fifth bit of element i
     6  qs  16 bytes: low nibbles are elements 0..15, high nibbles 16..31
   y = d * (q - 16) */
#include "shared/nibbles.h"
#include "shared/fields.h"
typedef struct { uint8_t d[2], qh[4], qs[16]; } cbq_q5_0_block;

CBQ_FN W cbq_q5_0_codes(const cbq_q5_0_block *b, uint32_t r, uint32_t o) {
    (void)r;
    return w_with_bit(w_nib16(b->qs, o, 2), cbq_u32(b->qh, 2), o, 4);
}
CBQ_FN float cbq_q5_0_d(const cbq_q5_0_block *b) { return w_f16(b->d); }
CBQ_FN void cbq_q5_0_pack(cbq_q5_0_block *b, const uint8_t codes[32], uint32_t fifth, uint16_t d) {
    memcpy(b->d, &d, 2);
    memcpy(b->qh, &fifth, 4);
    cbq_pack_nibbles(b->qs, codes, 16);
}
CBQ_FN void cbq_q5_0_write(cbq_q5_0_block *b, const cbq_fields *f) { cbq_q5_0_pack(b, f->codes, cbq_fifth_bits(f->codes), f->d); }

#define CBQ_STORE_q5_0 FREE(0, 31), F16(1)
#define CBQ_FORMAT_q5_0(BLOCK, PLAIN) BLOCK(q5_0, 6, 32, 22, 32, LINEAR(16, 5), ONE, NOMIN, 0, "5-bit codes, one scale")
