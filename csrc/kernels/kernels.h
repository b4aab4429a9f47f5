/* What an instruction set offers: one table of functions, filled by isa/NAME.c from the list of formats. */
#pragma once
#include "../base.h"

#define CBQ_MAX_FORMATS 64 /* room in the table: one initializer too many does not compile */

/* n blocks at `blocks` to n * elements values at y; neither needs any alignment. */
typedef void cbq_to_float_fn(const uint8_t *blocks, uint8_t *y, int64_t n);

typedef struct {
    cbq_to_float_fn *to_float[CBQ_MAX_FORMATS][3]; /* by index of the format, then CBQ_F32, CBQ_F16, CBQ_BF16 */
    /* A copy with stores past the cache; dst is aligned to 64 bytes and `bytes` is a multiple of 64. The caller fences. */
    void (*stream_copy)(uint8_t *dst, const uint8_t *src, int64_t bytes);
    /* It beats stores through the cache with up to so many threads (0: never), and for outputs of more bytes than this
       (0: than twice the last cache). */
    int stream_threads;
    int64_t stream_from;
} cbq_kernels;

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif
extern const cbq_kernels cbq_kernels_scalar, cbq_kernels_avx2, cbq_kernels_avx512, cbq_kernels_neon;
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
