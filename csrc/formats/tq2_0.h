/* tq2_0: 256 elements in 66 bytes. Layout: ggml's block_tq2_0.
     0  qs  64 bytes: element i = 128 h + 32 j + l is bits 2j, 2j+1 of byte 32 h + l
    64  d   f16
   y = d * (q - 1); the unused code 3 reads as 2 d */
#include "shared/pairs.h"
#include "shared/fields.h"
typedef struct { uint8_t qs[64], d[2]; } cbq_tq2_0_block;

CBQ_FN W cbq_tq2_0_codes(const cbq_tq2_0_block *b, uint32_t r, uint32_t o) {
    return w_bits(w_ld(b->qs + 32 * (r / 4), o, 2), 2 * (r % 4), 2, 0);
}
CBQ_FN float cbq_tq2_0_d(const cbq_tq2_0_block *b) { return w_f16(b->d); }
CBQ_FN void cbq_tq2_0_pack(cbq_tq2_0_block *b, const uint8_t codes[256], uint16_t d) {
    memcpy(b->d, &d, 2);
    cbq_pack_pairs(b->qs, codes);
}
CBQ_FN void cbq_tq2_0_write(cbq_tq2_0_block *b, const cbq_fields *f) { cbq_tq2_0_pack(b, f->codes, f->d); }

#define CBQ_STORE_tq2_0 FREE(0, 2), F16(1)
#define CBQ_FORMAT_tq2_0(BLOCK, PLAIN) BLOCK(tq2_0, 35, 256, 66, 256, LINEAR(1, 2), ONE, NOMIN, 0, "ternary, 2 bits, one scale")
