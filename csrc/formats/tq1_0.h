/* tq1_0: 256 elements in 54 bytes. Layout: ggml's block_tq1_0.
     0  qs  48 bytes of five base-3 digits, the most significant first:
            bytes  0..31: digit n of byte l is element 32 n + l            (elements   0..159)
            bytes 32..47: digit n of byte l is element 160 + 16 n + l - 32 (elements 160..239)
    48  qh   4 bytes of four digits: digit n of byte l is element 240 + 4 n + l
    52  d   f16
   A digit is the integer part of 3 * (byte * 3^n mod 256) / 256.
   y = d * (q - 1) */
#include "shared/fields.h"
typedef struct { uint8_t qs[48], qh[4], d[2]; } cbq_tq1_0_block;

CBQ_FN W cbq_tq1_0_codes(const cbq_tq1_0_block *b, uint32_t r, uint32_t o) {
    if (r < 5) return w_digit3(w_pow3(w_ld(b->qs, o, 2), r));
    W v = w_ld16(b->qs + 32, o, 2); /* runs 5, 6, 7: two digits of these 16 bytes, and qh at the very end */
    W low = w_pow3(v, 2 * (r - 5));
    W high = r < 7 ? w_pow3(v, 2 * (r - 5) + 1) : W_U32(e, o, cbq_pow3(cbq_u32(b->qh, 2), e & 3));
    return w_digit3(w_cat16(low, high, o));
}
CBQ_FN float cbq_tq1_0_d(const cbq_tq1_0_block *b) { return w_f16(b->d); }
/* A byte of five digits, the first in codes[0], the next `stride` further: their number in base 3 as a fraction of 243, in
   256ths, rounded up. */
CBQ_FN uint8_t cbq_tq1_0_digits(const uint8_t *codes, int stride, int n) {
    uint32_t number = 0;
    for (int i = 0; i < 5; i++) number = 3 * number + (i < n ? codes[i * stride] : 0);
    return (uint8_t)((number * 256 + 242) / 243);
}
CBQ_FN void cbq_tq1_0_pack(cbq_tq1_0_block *b, const uint8_t codes[256], uint16_t d) {
    memcpy(b->d, &d, 2);
    for (int l = 0; l < 32; l++) b->qs[l] = cbq_tq1_0_digits(codes + l, 32, 5);
    for (int l = 0; l < 16; l++) b->qs[32 + l] = cbq_tq1_0_digits(codes + 160 + l, 16, 5);
    for (int l = 0; l < 4; l++) b->qh[l] = cbq_tq1_0_digits(codes + 240 + l, 4, 4);
}
CBQ_FN void cbq_tq1_0_write(cbq_tq1_0_block *b, const cbq_fields *f) { cbq_tq1_0_pack(b, f->codes, f->d); }

#define CBQ_STORE_tq1_0 FREE(0, 2), F16(1)
#define CBQ_FORMAT_tq1_0(BLOCK, PLAIN) BLOCK(tq1_0, 34, 256, 54, 256, LINEAR(1, 2), ONE, NOMIN, 0, "ternary, five digits a byte, one scale")
