#include "shapes.h"

#include <stdio.h>

#include "../../operators/operators.h"

static void shape_text(char *text, size_t size, int ndim, const int64_t *shape) {
    size_t used = (size_t)snprintf(text, size, "(");
    for (int i = 0; i < ndim && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%lld%s", (long long)shape[i], ndim == 1 ? "," : i + 1 < ndim ? ", " : "");
    if (used < size) snprintf(text + used, size - used, ")");
}

cbq_code cbq_check_shape(const cbq_array *a, const char *name, int ndim, const int64_t *shape, cbq_status *st) {
    int same = a->ndim == ndim;
    for (int i = 0; same && i < ndim; i++) same = a->shape[i] == shape[i];
    if (same) return CBQ_OK;
    char expected[120], got[120];
    shape_text(expected, sizeof expected, ndim, shape);
    shape_text(got, sizeof got, a->ndim, a->shape);
    return cbq_fail(st, CBQ_BAD_VALUE, "%s: expected shape %s, got %s", name, expected, got);
}

cbq_code cbq_check_dense(const cbq_array *a, const char *name, int axis, cbq_status *st) {
    if (cbq_is_dense(a, axis)) return CBQ_OK;
    return cbq_fail(st, CBQ_BAD_VALUE, "%s: expected a stride of %d bytes along axis %d, got %lld", name, cbq_float_bytes(a->dtype), axis,
                    (long long)a->strides[axis]);
}

static int can_join(cbq_array *const *arrays, int n, int axis) {
    for (int i = 0; i < n; i++) {
        const cbq_array *a = arrays[i];
        if (a->strides[axis] != a->strides[axis + 1] * a->shape[axis + 1]) return 0;
    }
    return 1;
}
static void drop_axis(cbq_array *a, int axis) {
    for (a->ndim--; axis < a->ndim; axis++) a->shape[axis] = a->shape[axis + 1], a->strides[axis] = a->strides[axis + 1];
}

void cbq_join_axes(cbq_array *const *arrays, int n) {
    for (int i = 0; i < n; i++) {
        cbq_array *a = arrays[i];
        if (a->ndim == 0) a->ndim = 1, a->shape[0] = 1;
        a->strides[a->ndim - 1] = cbq_float_bytes(a->dtype); /* that of an axis of one element may be anything */
    }
    const cbq_array *first = arrays[0];
    for (int axis = first->ndim - 2; axis >= 0; axis--) {
        const int is_one = first->shape[axis] == 1;
        if (!is_one && !can_join(arrays, n, axis)) continue;
        for (int i = 0; i < n; i++) {
            if (!is_one) arrays[i]->shape[axis + 1] *= arrays[i]->shape[axis];
            drop_axis(arrays[i], axis);
        }
    }
}

uint8_t *cbq_row(const cbq_array *a, int64_t r) {
    uint8_t *row = a->data;
    for (int axis = a->ndim - 2; axis > 0; axis--) {
        row += r % a->shape[axis] * a->strides[axis];
        r /= a->shape[axis];
    }
    return a->ndim > 1 ? row + r * a->strides[0] : row;
}

int cbq_mix(const cbq_array *const *arrays, int n) {
    for (int i = 1; i < n; i++)
        if (arrays[i]->dtype != arrays[0]->dtype) return CBQ_MIXED;
    return arrays[0]->dtype;
}
