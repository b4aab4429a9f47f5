/* q1_0: 128 elements in 18 bytes. Layout: ggml's block_q1_0.
     0  d   f16
     2  qs  16 bytes: bit i mod 8 of byte i div 8 is element i
   y = d where the bit is 1, else -d: the code is +1 or -1, so a zero keeps its sign */
#include "shared/fields.h"
typedef struct { uint8_t d[2], qs[16]; } cbq_q1_0_block;

CBQ_FN W cbq_q1_0_codes(const cbq_q1_0_block *b, uint32_t r, uint32_t o) {
    return w_addall(w_bit(cbq_u32(b->qs + 4 * r, 2), o) << 1, -1);
}
CBQ_FN float cbq_q1_0_d(const cbq_q1_0_block *b) { return w_f16(b->d); }
CBQ_FN void cbq_q1_0_pack(cbq_q1_0_block *b, const uint32_t positive[4], uint16_t d) {
    memcpy(b->d, &d, 2);
    memcpy(b->qs, positive, 16);
}
CBQ_FN void cbq_q1_0_write(cbq_q1_0_block *b, const cbq_fields *f) { memcpy(b->d, &f->d, 2); }

#define CBQ_STORE_q1_0 KEPT, F16(1)
#define CBQ_FORMAT_q1_0(BLOCK, PLAIN) BLOCK(q1_0, 41, 128, 18, 128, SIGNED(2), ONE, NOMIN, 0, "signs, one scale")
