/* Decoded floats to memory: by several threads, and past the cache where that pays. */
#pragma once
#include "../kernels/kernels.h"

/* Scales at hand from one call to the next: those of elements begin .. end - 1. */
enum { CBQ_CURSOR_SCALES = 256 };
typedef struct {
    int64_t begin, end;
    float scales[CBQ_CURSOR_SCALES];
} cbq_cursor;
static inline void cbq_drop_scales(cbq_cursor *c) { c->begin = c->end = 0; } /* an initializer would clear the scales too */

typedef struct {
    cbq_to_float_fn *decode;
    /* Instead of it, where blocks are not all of it: n blocks from number `first` on. The cursor begins with nothing at hand. */
    void (*decode_at)(const void *context, cbq_cursor *cursor, int64_t first, int64_t n, uint8_t *y);
    const void *context;
    const cbq_kernels *kernels; /* of the level in use: how it stores past the cache */
    const uint8_t *blocks;
    uint8_t *out;
    int64_t block_bytes, out_bytes; /* of a block */
} cbq_float_job;

/* n blocks of `elements` each; stream: stores past the cache, 1, 0, or -1 to decide by the size. */
void cbq_write_floats(cbq_float_job *job, int64_t n, int elements, int threads, int stream);

/* Whether an output of so many bytes is to be stored past the cache. */
int cbq_should_stream(const cbq_kernels *kernels, int64_t bytes, int threads, int stream);
