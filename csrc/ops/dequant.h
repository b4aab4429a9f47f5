/* Decode a buffer of blocks. */
#pragma once
#include "../dispatch.h"
#include "../registry.h"
#include "../view.h"

typedef struct {
    int format;  /* index in cbq_formats */
    int dtype;   /* CBQ_F32, CBQ_F16, CBQ_BF16 */
    int threads; /* 1 and up, or 0 for the default */
    int stream;  /* stores past the cache: 1, 0, or -1 to decide by the size */
    const cbq_level *level;
    cbq_view blocks;
    cbq_out out;
} cbq_dequant_args;

/* Elements below which a call stays on the caller's thread, whatever `threads` says: waking another takes 20 to 50
   microseconds, in which one core decodes some 200 000. */
enum { CBQ_DEQUANT_MIN_PARALLEL = 1 << 19 };

cbq_code cbq_dequant(const cbq_dequant_args *args, cbq_status *st);

/* mask[i] = 1 where block i has a scale or minimum that is NaN or infinite (a plain type: where the value is). */
cbq_code cbq_nonfinite(int format, cbq_view blocks, cbq_out mask, int threads, cbq_status *st);
