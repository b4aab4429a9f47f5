/* What codecs offer: one table of functions for each instruction set, filled by isa/codecs/NAME.c from the rows of kinds.h. */
#pragma once
#include "../kernels/kernels.h"
#include "kinds.h"

/* n blocks of codes of x; saturate: what is beyond the largest finite value becomes that, even infinity. */
typedef void cbq_to_codes_fn(const float *x, uint8_t *codes, int64_t n, int saturate);

/* By kind, then CBQ_UNPACKED or CBQ_PACKED (NULL for codes of 8 bits), then CBQ_F32, CBQ_F16, CBQ_BF16. */
typedef struct {
    cbq_to_float_fn *to_float[CBQ_N_CODE_KINDS][2][3];
    cbq_to_codes_fn *to_codes[CBQ_N_CODE_KINDS][2]; /* NULL for e8m0 */
    void (*round_to_odd)(const uint8_t *x, float *y, int64_t n); /* n float64: lanes/README.md, f_ld_f64_odd */
} cbq_codecs;

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif
extern const cbq_codecs cbq_codecs_scalar, cbq_codecs_avx2, cbq_codecs_avx512, cbq_codecs_neon;
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
