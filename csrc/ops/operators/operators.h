/* The operators of cbquant.deepseek that work element by element: arguments are checked, then rows go to threads. */
#pragma once
#include "../../array.h"
#include "../../dispatch.h"

/* What every operator is told: threads 1 and up, or 0 for the default; stores past the cache: 1, 0, or -1 to decide by the size. */
typedef struct {
    const cbq_level *level;
    int threads, stream;
} cbq_how;

typedef struct {
    cbq_how how;
    cbq_array a, b, out; /* of one shape */
} cbq_vector_add_args;

cbq_code cbq_vector_add(cbq_vector_add_args *args, cbq_status *st);
