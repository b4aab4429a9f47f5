/* mxfp4: 32 elements in 17 bytes. Layout: ggml's block_mxfp4; values: OCP Microscaling Formats 1.0.
     0  x   E8M0 scale: 2^(x - 127); 255 is NaN, and then the whole block is
     1  qs  16 bytes: low nibbles are elements 0..15, high nibbles 16..31
   y = scale * E[q], E the values of shared/e2m1_values.h */
#include "shared/e2m1_values.h"
#include "shared/each_byte.h"
#include "shared/nibbles.h"
#include "shared/fields.h"
typedef struct { uint8_t x[1], qs[16]; } cbq_mxfp4_block;

CBQ_FN W cbq_mxfp4_codes(const cbq_mxfp4_block *b, uint32_t r, uint32_t o) { (void)r; return w_nib16(b->qs, o, 1); }
/* The byte is the exponent field, but for its two ends: 0 is the subnormal 2^-127 and 255 a quiet NaN; both have
   the top mantissa bit set. */
#define CBQ_MXFP4_SCALE(x) ((uint32_t)(x) << 23 | (uint32_t)((uint8_t)((x) + 1) < 2) << 22)
#if defined(__CUDACC__)
CBQ_FN float cbq_mxfp4_d(const cbq_mxfp4_block *b) { return cbq_as_f32(CBQ_MXFP4_SCALE(b->x[0])); }
#else
CBQ_TABLE uint32_t cbq_mxfp4_scales[256] = {CBQ_EACH_BYTE(CBQ_MXFP4_SCALE)};
CBQ_FN float cbq_mxfp4_d(const cbq_mxfp4_block *b) { return cbq_as_f32(cbq_mxfp4_scales[b->x[0]]); }
#endif
CBQ_FN void cbq_mxfp4_pack(cbq_mxfp4_block *b, const uint8_t codes[32], uint8_t x) {
    b->x[0] = x;
    cbq_pack_nibbles(b->qs, codes, 16);
}
CBQ_FN void cbq_mxfp4_write(cbq_mxfp4_block *b, const cbq_fields *f) { cbq_mxfp4_pack(b, f->codes, f->s[0]); }

#define CBQ_STORE_mxfp4 BOOK, BYTES
#define CBQ_FORMAT_mxfp4(BLOCK, PLAIN) BLOCK(mxfp4, 39, 32, 17, 32, TABLE(cbq_e2m1_values, 2, 5), ONE, NOMIN, 0, "E2M1 codes, E8M0 scale (OCP MX)")
