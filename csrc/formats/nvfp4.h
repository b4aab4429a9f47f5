/* nvfp4: 64 elements in 36 bytes, four groups of 16. Layout: ggml's block_nvfp4.
     0  x   4 unsigned E4M3 scales, one a group: 0x7f reads as 0, otherwise bit 7 is ignored
     4  qs  32 bytes, 8 a group: low nibbles are its elements 0..7, high nibbles 8..15
   y = scale * E[q], E the values of shared/e2m1_values.h */
#include "shared/e2m1_values.h"
#include "shared/each_byte.h"
#include "shared/nibbles.h"
#include "shared/fields.h"
typedef struct { uint8_t x[4], qs[32]; } cbq_nvfp4_block;

CBQ_FN W cbq_nvfp4_codes(const cbq_nvfp4_block *b, uint32_t r, uint32_t o) { return w_nib8(b->qs + 16 * r, o, 4); }
#if defined(__CUDACC__)
/* The same fields as in a binary16 of 1/256 of it (exponent bias 15 for 7), subnormals too: its conversion has no branches. */
CBQ_FN float cbq_nvfp4_s(const cbq_nvfp4_block *b, uint32_t g) {
    uint32_t x = b->x[g];
    return 256.0f * w_f16_bits(x == 127 ? 0 : (x & 127) << 7);
}
#else
/* (8 + mantissa) * 2^(exponent - 10); where the exponent is 0, mantissa * 2^-9. */
#define CBQ_NVFP4_EXPONENT(x) ((x) >> 3 & 15)
#define CBQ_NVFP4_NORMAL(x) (CBQ_NVFP4_EXPONENT(x) != 0)
#define CBQ_NVFP4_SCALE(x) \
    ((x) == 127 ? 0 : (float)((8 * CBQ_NVFP4_NORMAL(x) + ((x) & 7)) << (CBQ_NVFP4_EXPONENT(x) + !CBQ_NVFP4_NORMAL(x))) / 1024)
CBQ_TABLE float cbq_nvfp4_scales[256] = {CBQ_EACH_BYTE(CBQ_NVFP4_SCALE)};
CBQ_FN float cbq_nvfp4_s(const cbq_nvfp4_block *b, uint32_t g) { return cbq_nvfp4_scales[b->x[g]]; }
#endif
CBQ_FN void cbq_nvfp4_pack(cbq_nvfp4_block *b, const uint8_t codes[64], const uint8_t x[4]) {
    memcpy(b->x, x, 4);
    for (int g = 0; g < 4; g++) cbq_pack_nibbles(b->qs + 8 * g, codes + 16 * g, 8);
}
CBQ_FN void cbq_nvfp4_write(cbq_nvfp4_block *b, const cbq_fields *f) { cbq_nvfp4_pack(b, f->codes, f->s); }

#define CBQ_STORE_nvfp4 BOOK, BYTES
#define CBQ_FORMAT_nvfp4(BLOCK, PLAIN) BLOCK(nvfp4, 40, 64, 36, 16, TABLE(cbq_e2m1_values, 2, 5), FLOATS, NOMIN, 0, "E2M1 codes, E4M3 scales of 16")
