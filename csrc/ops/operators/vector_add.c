#include "operators.h"
#include "rows.h"
#include "shapes.h"

typedef struct {
    const cbq_vector_add_args *a;
    void (*add)(const cbq_add_row *row);
} task;

static void place(const void *args, int64_t r, uint8_t *y[]) { y[0] = cbq_row(&((const task *)args)->a->out, r); }

static void fill(const void *args, int64_t r, int64_t at, int64_t n, uint8_t *const y[], int past) {
    const task *t = args;
    const cbq_array *a = &t->a->a, *b = &t->a->b;
    cbq_add_row row = {cbq_row(a, r) + at * cbq_float_bytes(a->dtype), cbq_row(b, r) + at * cbq_float_bytes(b->dtype), y[0], n,
                       a->dtype, b->dtype, t->a->out.dtype, past};
    t->add(&row);
}

cbq_code cbq_vector_add(cbq_vector_add_args *a, cbq_status *st) {
    const int ndim = a->a.ndim, last = ndim - 1;
    if (cbq_check_shape(&a->b, "b", ndim, a->a.shape, st) || cbq_check_shape(&a->out, "out", ndim, a->a.shape, st)) return st->code;
    if (ndim && (cbq_check_dense(&a->a, "a", last, st) || cbq_check_dense(&a->b, "b", last, st) || cbq_check_dense(&a->out, "out", last, st)))
        return st->code;
    cbq_array *const arrays[] = {&a->a, &a->b, &a->out};
    cbq_join_axes(arrays, 3);
    const int64_t elements = cbq_elements(&a->a);
    if (elements == 0) return CBQ_OK;
    task t = {a, a->how.level->operators->add[cbq_mix((const cbq_array *const *)arrays, 3)]};
    const int64_t n = a->a.shape[a->a.ndim - 1];
    cbq_row_job job = {&t, elements / n, n, 1, cbq_float_bytes(a->out.dtype), place, fill};
    cbq_fill_rows(&job, CBQ_ROWS_ALONE, CBQ_ROWS_GRAIN, &a->how);
    return CBQ_OK;
}
