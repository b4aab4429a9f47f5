#include "arrays.h"

#include "../check.h"
#include "../product.h"

cbq_code cbq_check_array(const cbq_array *a, const char *name, int ndim, const int64_t *shape, cbq_status *st) {
    if (a->ndim != ndim) return cbq_fail(st, CBQ_BAD_VALUE, "%s: expected %d dimensions, got %d", name, ndim, a->ndim);
    for (int i = 0; i < ndim; i++)
        if (a->shape[i] != shape[i])
            return cbq_fail(st, CBQ_BAD_VALUE, "%s: expected %lld along axis %d, got %lld", name, (long long)shape[i], i, (long long)a->shape[i]);
    if (!cbq_is_dense(a, ndim - 1)) return cbq_fail(st, CBQ_BAD_VALUE, "%s: expected a contiguous last axis", name);
    return CBQ_OK;
}

cbq_code cbq_check_lengths(cbq_view lengths, int64_t rows, int64_t n, cbq_status *st) {
    const int64_t *each = (const int64_t *)(const void *)lengths.data;
    if (cbq_check_rows("lengths", lengths.bytes, rows, 8, st)) return st->code;
    for (int64_t b = 0; b < rows; b++)
        if (each[b] < 0 || each[b] > n)
            return cbq_fail(st, CBQ_BAD_VALUE, "lengths: expected 0 to %lld, got %lld of sequence %lld", (long long)n, (long long)each[b],
                            (long long)b);
    return CBQ_OK;
}

void cbq_row_to_floats(const cbq_array *a, int64_t i, int64_t j, const cbq_level *level, float scale, float *to) {
    const int64_t width = a->shape[a->ndim - 1];
    const uint8_t *from = a->data + (a->ndim > 1 ? i * a->strides[0] : 0) + (a->ndim > 2 ? j * a->strides[1] : 0);
    level->kernels->to_float[cbq_plain_format(a->dtype)][CBQ_F32](from, (uint8_t *)to, width);
    for (int64_t c = 0; c < width; c++) to[c] *= scale;
}
