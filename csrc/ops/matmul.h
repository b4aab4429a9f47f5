/* Multiply with blocks or planes: y[m, n] = x[m, k] * w[n, k]^T. */
#pragma once
#include "planes.h"

typedef enum { CBQ_PRECISION_F32, CBQ_PRECISION_BF16, CBQ_PRECISION_Q8, CBQ_PRECISION_Q16 } cbq_precision;

typedef struct cbq_matmul_args {
    int format;       /* of w: index in cbq_formats */
    int precision;
    int dtype, out_dtype; /* of x and of y: CBQ_F32, CBQ_F16, CBQ_BF16 */
    int threads;      /* 1 and up, or 0 for the default */
    int64_t m, n, k;
    const cbq_level *level;
    const cbq_planes *planes; /* the weights, in place of w; or NULL */
    cbq_view x, w;
    cbq_out out;
} cbq_matmul_args;

/* The way of a product: up to so many rows of x, weights are decoded and multiplied in one pass; with more they are decoded
   into a panel that stays in cache, for all rows of x. Plain formats always take panels.

   Measured on Sapphire Rapids with weights in cache, one thread, G operations/s, one pass against panels:
     f32  q4_0, 4 rows: AVX-512 54 against 46, AVX2 43 against 38; 5 rows would need more registers than AVX2 has
     q8   q4_0: AVX-512 VNNI 58 against 63 at 2 rows, 69 against 84 at 3; AVX2 50 against 49 at 2, 54 against 66 at 3
          q6_k: AVX-512 VNNI 65 against 45 at 2, 77 against 62 at 3; AVX2 31 against 32 at 2, 38 against 44 at 3
          With weights from memory one pass gains, for it reads them in one stream: with panels at 3 rows q6_k and q2_k on two
          threads fell below their speed at 2 rows (75 to 63, 54 to 41).
   And on Zen 5, four rows: scales and mins of groups take a panel most of its time. AVX-512 VNNI does q2_k with 206 in one pass and 143
   in panels, q4_k 205 and 191, q4_0 169 and 207; with weights from memory and two threads q3_k 360 and 210, q6_k 342 and 210, tq2_0
   420 and 296. AVX2, one row of weights at a time, gains where there are mins only: q2_k 115 and 103, q6_k 112 and 124.
   bf16 and q16 have panels only: their one pass is not written. */
static inline int cbq_one_pass_rows(int precision, const cbq_format *f, const cbq_level *level) {
    if (precision == CBQ_PRECISION_F32) return CBQ_DOT_M;
    if (precision != CBQ_PRECISION_Q8) return 0;
    const int is_long = f->kind == CBQ_KIND_LINEAR && f->elements == 256;
    return is_long && (f->has_min || level->ints->dot_rows > 1) ? CBQ_DOT_Q8_M : CBQ_DOT_Q8_M - 1;
}

cbq_code cbq_matmul(const cbq_matmul_args *args, cbq_status *st);

/* Whether a product of that size is worth more than one thread. */
int cbq_matmul_is_large(int64_t m, int64_t n, int64_t k);
