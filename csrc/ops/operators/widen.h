/* Rows of any of the three types as float32. */
#pragma once
#include "../../array.h"
#include "../../operators/operators.h"

/* n floats at p: where they lie, or in `tile`, which has room for them. */
static inline const float *cbq_widen(const cbq_operators *o, const uint8_t *p, int dtype, int64_t n, float *tile) {
    if (dtype == CBQ_F32) return (const float *)(const void *)p;
    o->widen[dtype](p, (uint8_t *)tile, n);
    return tile;
}
