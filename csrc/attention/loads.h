/* Rows of floats of any type as vectors of float32. */
#pragma once
#include "../array.h"
#include "../lanes/common.h"

/* The first n < CBQ_LANES of a vector, then zeros. */
CBQ_FN F f_ld_first(const uint8_t *p, int64_t n, int dtype) {
    uint8_t last[CBQ_LANES * 4] = {0};
    memcpy(last, p, (size_t)(n * cbq_float_bytes(dtype)));
    return f_ld_as(last, dtype);
}

/* Rows that are read soon, `bytes` of each: the processor's own prefetching does not get far in rows of a few lines when several of
   them are read together, and knows nothing of a list. */
typedef struct {
    const uint8_t *const *rows;
    int64_t bytes;
} rows_ahead;

CBQ_FN void ask_for(rows_ahead ahead, int64_t begin, int64_t n) {
    for (int64_t i = begin; ahead.bytes && i < begin + n; i++) cbq_prefetch((uintptr_t)ahead.rows[i], ahead.bytes);
}
