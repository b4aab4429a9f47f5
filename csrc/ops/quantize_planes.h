/* Numbers to planes. */
#pragma once
#include "planes.h"

typedef struct {
    cbq_planes planes; /* their codes and scales are written; global: 0 where it is to be chosen */
    int source;        /* index in cbq_formats of x's type: f32, f64, f16, bf16 */
    int threads;       /* 1 and up, or 0 for the default */
    const cbq_level *level;
    cbq_view x;        /* aligned as its type asks for */
    cbq_out codes, scales;
} cbq_quantize_planes_args;

/* planes.global becomes the scale in use. */
cbq_code cbq_quantize_planes(cbq_quantize_planes_args *args, cbq_status *st);
