/* Encode rows of floats. */
#pragma once
#include "../dispatch.h"
#include "../registry.h"
#include "../view.h"

typedef struct {
    int format;          /* index in cbq_formats */
    int source;          /* that of x's type: f32, f64, f16, bf16 */
    int allow_nonfinite; /* else NaN or infinity in x is an error */
    int out_is_new;      /* nobody knows it yet: it may be written before all of x is known to be finite, and x is read once */
    int improve;         /* blocks with a smaller error than the reference's */
    int threads;         /* 1 and up, or 0 for the default */
    const cbq_level *level;
    int64_t rows, k;
    cbq_view x;          /* rows * k values, aligned as their type asks for */
    cbq_view importance; /* k floats from 0 up, or nothing */
    cbq_out out;         /* rows of blocks; untouched where this fails, but for out_is_new */
} cbq_quantize_args;

/* Elements below which a call stays on the caller's thread: the quickest encoders take 20 microseconds for so many. */
enum { CBQ_QUANTIZE_MIN_PARALLEL = 1 << 16 };

cbq_code cbq_quantize(const cbq_quantize_args *args, cbq_status *st);
