/* q2_0: 64 elements in 18 bytes. Layout: ggml's block_q2_0.
     0  d   f16
     2  qs  16 bytes: four neighbours a byte, the first in the lowest two bits
   y = d * (q - 1): -1, 0, 1, 2 times d */
#include "shared/fields.h"
typedef struct { uint8_t d[2], qs[16]; } cbq_q2_0_block;

CBQ_FN W cbq_q2_0_codes(const cbq_q2_0_block *b, uint32_t r, uint32_t o) {
    return W_U32(e, o, cbq_spread_pairs(b->qs[8 * r + e]));
}
CBQ_FN float cbq_q2_0_d(const cbq_q2_0_block *b) { return w_f16(b->d); }
CBQ_FN void cbq_q2_0_pack(cbq_q2_0_block *b, const uint8_t codes[64], uint16_t d) {
    memcpy(b->d, &d, 2);
    for (int i = 0; i < 16; i++) {
        const uint8_t *c = codes + 4 * i;
        b->qs[i] = (uint8_t)(c[0] | c[1] << 2 | c[2] << 4 | c[3] << 6);
    }
}
CBQ_FN void cbq_q2_0_write(cbq_q2_0_block *b, const cbq_fields *f) { cbq_q2_0_pack(b, f->codes, f->d); }

#define CBQ_STORE_q2_0 FREE(0, 3), F16(1)
#define CBQ_FORMAT_q2_0(BLOCK, PLAIN) BLOCK(q2_0, 42, 64, 18, 64, LINEAR(1, 2), ONE, NOMIN, 0, "2-bit codes, one scale")
