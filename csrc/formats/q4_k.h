/* q4_k: 256 elements in 144 bytes, eight groups of 32. Layout: ggml's block_q4_K.
     0  d       f16
     2  dmin    f16
     4  scales  12 bytes: 6-bit scales and minimums, see shared/k_scales.h
    16  qs      128 bytes: 32 bytes serve two groups, low nibbles the even one
   y = (d * s) * q - (dmin * m) */
#include "shared/k_scales.h"
#include "shared/nibbles.h"
#include "shared/fields.h"
typedef struct { uint8_t d[2], dmin[2], scales[12], qs[128]; } cbq_q4_k_block;

CBQ_FN W cbq_q4_k_codes(const cbq_q4_k_block *b, uint32_t r, uint32_t o) {
    return w_bits(w_ld(b->qs + 32 * (r / 2), o, 4), 4 * (r % 2), 4, 0);
}
CBQ_FN float cbq_q4_k_d(const cbq_q4_k_block *b) { return w_f16_of2(b->d, 0); }
CBQ_FN float cbq_q4_k_dmin(const cbq_q4_k_block *b) { return w_f16_of2(b->d, 1); }
CBQ_FN uint32_t cbq_q4_k_s4(const cbq_q4_k_block *b, uint32_t k) { return cbq_k_scale4(b->scales, k); }
CBQ_FN uint32_t cbq_q4_k_m4(const cbq_q4_k_block *b, uint32_t k) { return cbq_k_min4(b->scales, k); }
CBQ_FN void cbq_q4_k_pack(cbq_q4_k_block *b, const uint8_t codes[256], const uint8_t s[8], const uint8_t m[8], uint16_t d, uint16_t dmin) {
    memcpy(b->d, &d, 2);
    memcpy(b->dmin, &dmin, 2);
    cbq_k_pack_scales(b->scales, s, m);
    for (int g = 0; g < 8; g += 2) cbq_pack_nibbles(b->qs + 16 * g, codes + 32 * g, 32);
}
CBQ_FN void cbq_q4_k_write(cbq_q4_k_block *b, const cbq_fields *f) { cbq_q4_k_pack(b, f->codes, f->s, f->m, f->d, f->dmin); }

#define CBQ_STORE_q4_k FREE(0, 15), F16(1), STEPS(0, 63, 1, 0), MINIMUMS(63)
#define CBQ_FORMAT_q4_k(BLOCK, PLAIN) BLOCK(q4_k, 12, 256, 144, 32, LINEAR(0, 4), GROUPS, MIN_GROUPS, 0, "4-bit codes, 6-bit scales and minimums of 32")
