/* The first number of x that is NaN or infinite, whichever thread meets it. */
#pragma once
#include <stdatomic.h>

#include "../dispatch.h"
#include "../status.h"

typedef struct {
    _Atomic int64_t at; /* or the number of all */
} cbq_first_nonfinite;

/* Is one of n numbers that begin with number `first` of x? It is remembered. */
static inline int cbq_look_for_nonfinite(cbq_first_nonfinite *f, const cbq_level *level, const float *x, int64_t first, int64_t n) {
    int64_t at = level->encoders->find_nonfinite(x, n);
    if (at < 0) return 0;
    int64_t best = atomic_load(&f->at);
    while (first + at < best && !atomic_compare_exchange_weak(&f->at, &best, first + at)) {}
    return 1;
}

/* One was met before number `first`: what follows need not be looked at. */
static inline int cbq_is_behind_nonfinite(cbq_first_nonfinite *f, int64_t first) {
    return first > atomic_load_explicit(&f->at, memory_order_relaxed);
}

/* Were all n numbers, of rows of k, finite? */
static inline cbq_code cbq_check_finite(cbq_first_nonfinite *f, int64_t n, int64_t k, cbq_status *st) {
    int64_t at = atomic_load(&f->at);
    if (at == n) return CBQ_OK;
    return cbq_fail(st, CBQ_BAD_VALUE, "x: expected finite numbers, got NaN or infinity (as float32) in row %lld, column %lld",
                    (long long)(at / k), (long long)(at % k));
}
