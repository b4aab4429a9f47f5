/* iq4_nl: 32 elements in 18 bytes. Layout: ggml's block_iq4_nl.
     0  d   f16
     2  qs  16 bytes: low nibbles are elements 0..15, high nibbles 16..31
   y = d * C[q], C the codebook of shared/iq4_values.h */
#include "shared/iq4_values.h"
#include "shared/nibbles.h"
#include "shared/fields.h"
typedef struct { uint8_t d[2], qs[16]; } cbq_iq4_nl_block;

CBQ_FN W cbq_iq4_nl_codes(const cbq_iq4_nl_block *b, uint32_t r, uint32_t o) { (void)r; return w_nib16(b->qs, o, 2); }
CBQ_FN float cbq_iq4_nl_d(const cbq_iq4_nl_block *b) { return w_f16(b->d); }
CBQ_FN void cbq_iq4_nl_pack(cbq_iq4_nl_block *b, const uint8_t codes[32], uint16_t d) {
    memcpy(b->d, &d, 2);
    cbq_pack_nibbles(b->qs, codes, 16);
}
CBQ_FN void cbq_iq4_nl_write(cbq_iq4_nl_block *b, const cbq_fields *f) { cbq_iq4_nl_pack(b, f->codes, f->d); }

#define CBQ_STORE_iq4_nl BOOK, F16(1)
#define CBQ_FORMAT_iq4_nl(BLOCK, PLAIN) BLOCK(iq4_nl, 20, 32, 18, 32, TABLE(cbq_iq4_values, 1, 8), ONE, NOMIN, 0, "codebook of 16, one scale")
