#include "mla.h"

#include <stdlib.h>

#include "../check.h"
#include "../scratch.h"
#include "arrays.h"
#include "job.h"

/* A query without position times W_UK is a query for the compressed rows: their up-projection is never made. */

typedef struct {
    const cbq_mla_args *a;
    cbq_scratch scratch;
    float *q; /* [H, depth]: columns for ckv, then for k_rope, each padded */
    int64_t depth, split;
} task;

static cbq_code check(const cbq_mla_args *a, cbq_status *st) {
    if (a->w_uk.ndim != 3 || a->k_rope.ndim != 2)
        return cbq_fail(st, CBQ_BAD_VALUE, "w_uk, k_rope: expected 3 and 2 dimensions, got %d and %d", a->w_uk.ndim, a->k_rope.ndim);
    const int64_t heads = a->w_uk.shape[0], d = a->w_uk.shape[1], width = a->w_uk.shape[2], n = a->k_rope.shape[0], rope = a->k_rope.shape[1];
    if (cbq_check_array(&a->w_uk, "w_uk", 3, a->w_uk.shape, st) || cbq_check_array(&a->k_rope, "k_rope", 2, a->k_rope.shape, st)) return st->code;
    if (cbq_check_array(&a->q_nope, "q_nope", 2, (const int64_t[]){heads, d}, st)) return st->code;
    if (cbq_check_array(&a->q_rope, "q_rope", 2, (const int64_t[]){heads, rope}, st)) return st->code;
    if (cbq_check_array(&a->ckv, "ckv", 2, (const int64_t[]){n, width}, st)) return st->code;
    return cbq_check_array(&a->out, "out", 2, (const int64_t[]){heads, width}, st);
}

static int64_t absorb_floats(const cbq_mla_args *a) {
    return cbq_padded_o(a->w_uk.shape[2]) * (1 + CBQ_STEP) + cbq_padded_o(a->w_uk.shape[1]);
}

static void absorb_range(void *context, int64_t begin, int64_t end) {
    task *t = context;
    const cbq_mla_args *a = t->a;
    const int64_t d = a->w_uk.shape[1], width = a->w_uk.shape[2];
    float *o = (float *)(void *)cbq_scratch_take(&t->scratch), *q = o + cbq_padded_o(width), *panel = q + cbq_padded_o(d);
    for (int64_t h = begin; h < end; h++) {
        const cbq_rows rows = {a->w_uk.data + h * a->w_uk.strides[0], a->w_uk.strides[1], width, a->w_uk.dtype};
        cbq_row_to_floats(&a->q_nope, h, 0, a->level, 1, q);
        a->level->attention->weighted_rows(q, d, &rows, o, panel);
        for (int64_t i = 0; i < width; i++) t->q[h * t->depth + i] = o[i] * a->scale;
        cbq_row_to_floats(&a->q_rope, h, 0, a->level, a->scale, t->q + h * t->depth + t->split);
    }
    cbq_scratch_give(&t->scratch, (uint8_t *)o);
}

static cbq_cache cache_of(const cbq_array *a) { return (cbq_cache){{a->data, a->strides[0], a->shape[1], a->dtype}, 0, 0}; }

static cbq_code run(task *t, cbq_status *st) {
    const cbq_mla_args *a = t->a;
    const int64_t heads = a->w_uk.shape[0], n = a->k_rope.shape[0];
    const double weights = (double)heads * (double)a->w_uk.shape[1] * (double)a->w_uk.shape[2];
    const int threads = weights < 1 << 18 ? 1 : cbq_resolve_threads(a->threads);
    if (cbq_scratch_open(&t->scratch, cbq_most_pieces(heads, 1, threads), 4 * absorb_floats(a), st) == CBQ_OK)
        cbq_parallel(heads, 1, threads, absorb_range, t);
    cbq_scratch_close(&t->scratch);
    if (st->code) return st->code;
    cbq_attention_job job = {.level = a->level, .threads = a->threads, .batch = 1, .heads = heads, .groups = 1, .q = t->q, .depth = t->depth,
                             .k = {cache_of(&a->ckv), cache_of(&a->k_rope)}, .v = cache_of(&a->ckv), .parts = 2, .counts = &n, .out = a->out};
    memmove(job.out.shape + 1, job.out.shape, 2 * sizeof *job.out.shape);
    memmove(job.out.strides + 1, job.out.strides, 2 * sizeof *job.out.strides);
    job.out.ndim = 3, job.out.shape[0] = 1, job.out.strides[0] = 0;
    return cbq_run_attention(&job, st);
}

cbq_code cbq_mla(const cbq_mla_args *a, cbq_status *st) {
    if (check(a, st)) return st->code;
    const int64_t heads = a->w_uk.shape[0];
    task t = {.a = a, .split = cbq_padded_width(a->w_uk.shape[2])};
    t.depth = t.split + cbq_padded_width(a->k_rope.shape[1]);
    t.q = (double)heads * (double)t.depth > (double)(INT64_C(1) << 50) ? NULL : cbq_aligned_alloc(heads * t.depth * 4);
    if (!t.q) return cbq_fail(st, CBQ_NO_MEMORY, "no memory for %lld queries of %lld columns", (long long)heads, (long long)t.depth);
    memset(t.q, 0, (size_t)(heads * t.depth) * 4);
    run(&t, st);
    free(t.q);
    return st->code;
}
