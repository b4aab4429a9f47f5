#include "../check.h"
#include "operators.h"
#include "shapes.h"

enum { ALONE = 1 << 16, GRAIN = 1 << 14 };

static const float *floats(const cbq_array *a) { return (const float *)(const void *)a->data; }

static void range(void *context, int64_t begin, int64_t end) {
    const cbq_swiglu_args *a = context;
    float *y = (float *)(void *)a->out.data;
    a->how.level->operators->swiglu(floats(&a->gate) + begin, floats(&a->up) + begin, y + begin, end - begin);
}

/* float32 without gaps */
static cbq_code check(const cbq_array *a, const char *name, cbq_status *st) {
    int64_t next = 4;
    int plain = a->dtype == CBQ_F32 && (uintptr_t)a->data % 4 == 0;
    for (int axis = a->ndim - 1; axis >= 0; next *= a->shape[axis--]) plain = plain && (a->shape[axis] <= 1 || a->strides[axis] == next);
    if (plain || cbq_elements(a) == 0) return CBQ_OK;
    return cbq_fail(st, CBQ_BAD_VALUE, "%s: expected a C-contiguous, aligned float32 array", name);
}

cbq_code cbq_swiglu(const cbq_swiglu_args *a, cbq_status *st) {
    const int ndim = a->gate.ndim;
    if (cbq_check_shape(&a->up, "up", ndim, a->gate.shape, st) || cbq_check_shape(&a->out, "out", ndim, a->gate.shape, st)) return st->code;
    if (check(&a->gate, "gate", st) || check(&a->up, "up", st) || check(&a->out, "out", st)) return st->code;
    const int64_t n = cbq_elements(&a->gate);
    cbq_parallel(n, GRAIN, n < ALONE ? 1 : cbq_resolve_threads(a->how.threads), range, (void *)(uintptr_t)a);
    return CBQ_OK;
}
