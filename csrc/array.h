/* Arrays of floats that belong to the caller, at any strides and any alignment. */
#pragma once
#include "base.h"
#include "status.h"

enum { CBQ_MAX_DIMS = 32 };

typedef struct {
    uint8_t *data; /* that of inputs is only read */
    int dtype;     /* CBQ_F32, CBQ_F16, CBQ_BF16 */
    int ndim;
    int64_t shape[CBQ_MAX_DIMS], strides[CBQ_MAX_DIMS]; /* strides in bytes */
} cbq_array;

CBQ_FN int cbq_float_bytes(int dtype) { return dtype == CBQ_F32 ? 4 : 2; }

/* The float at p. */
CBQ_FN float cbq_float_at(const uint8_t *p, int dtype) {
    if (dtype == CBQ_F32) return cbq_as_f32(cbq_u32(p, 1));
    return dtype == CBQ_F16 ? cbq_f16_to_f32(cbq_u16(p, 1)) : cbq_as_f32(cbq_u16(p, 1) << 16);
}

CBQ_FN int64_t cbq_elements(const cbq_array *a) {
    int64_t n = 1;
    for (int i = 0; i < a->ndim; i++) n *= a->shape[i];
    return n;
}

/* Do neighbours along this axis lie side by side? Strides of an array without elements say nothing. */
CBQ_FN int cbq_is_dense(const cbq_array *a, int axis) {
    return a->shape[axis] <= 1 || a->strides[axis] == cbq_float_bytes(a->dtype) || cbq_elements(a) == 0;
}
