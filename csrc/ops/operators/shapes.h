/* Shapes and strides of the arguments of operators. */
#pragma once
#include "../../array.h"

/* Does the array have these dimensions? */
cbq_code cbq_check_shape(const cbq_array *a, const char *name, int ndim, const int64_t *shape, cbq_status *st);
#define CBQ_CHECK_SHAPE(a, name, st, ...) \
    cbq_check_shape(a, name, (int)(sizeof(int64_t[]){__VA_ARGS__} / 8), (const int64_t[]){__VA_ARGS__}, st)

/* Do neighbours along that axis lie side by side? */
cbq_code cbq_check_dense(const cbq_array *a, const char *name, int axis, cbq_status *st);

/* Joins axes of n arrays of one shape wherever all of them allow it, so that rows are as long as can be; their last axis is
   dense. At least one axis is left. */
void cbq_join_axes(cbq_array *const *arrays, int n);

/* Row number r of an array whose last axis is that of a row. */
uint8_t *cbq_row(const cbq_array *a, int64_t r);

/* The function for arrays of these types: the type of all, or CBQ_MIXED. */
int cbq_mix(const cbq_array *const *arrays, int n);
