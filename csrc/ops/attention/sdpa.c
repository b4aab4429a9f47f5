#include "sdpa.h"

#include <stdlib.h>

#include "../check.h"
#include "../scratch.h"
#include "arrays.h"
#include "job.h"

static cbq_code check_shapes(const cbq_sdpa_args *a, cbq_status *st) {
    if (a->q.ndim != 3 || a->k.ndim != 4 || a->v.ndim != 4)
        return cbq_fail(st, CBQ_BAD_VALUE, "q, k, v: expected 3, 4 and 4 dimensions, got %d, %d and %d", a->q.ndim, a->k.ndim, a->v.ndim);
    const int64_t batch = a->q.shape[0], heads = a->q.shape[1], groups = a->k.shape[1], n = a->k.shape[2], width = a->v.shape[3];
    if (cbq_check_array(&a->q, "q", 3, a->q.shape, st)) return st->code;
    if (cbq_check_array(&a->k, "k", 4, (const int64_t[]){batch, groups, n, a->q.shape[2]}, st)) return st->code;
    if (cbq_check_array(&a->v, "v", 4, (const int64_t[]){batch, groups, n, width}, st)) return st->code;
    if (cbq_check_array(&a->out, "out", 3, (const int64_t[]){batch, heads, width}, st)) return st->code;
    if (groups < 1 || heads % groups)
        return cbq_fail(st, CBQ_BAD_VALUE, "q: expected a multiple of %lld heads (those of k), got %lld", (long long)groups, (long long)heads);
    if (a->sink.data && cbq_check_rows("sink", a->sink.bytes, heads, 4, st)) return st->code;
    return a->lengths.data ? cbq_check_lengths(a->lengths, batch, n, st) : CBQ_OK;
}

/* ---- which rows ---- */

static void count_lengths(const cbq_sdpa_args *a, int64_t *counts) {
    const int64_t *lengths = (const int64_t *)(const void *)a->lengths.data;
    for (int64_t b = 0; b < a->q.shape[0]; b++) counts[b] = lengths ? lengths[b] : a->k.shape[2];
}

/* The lists without what is no position; one list serves all sequences where there is only one. */
static cbq_code copy_lists(const cbq_sdpa_args *a, int64_t rows, int64_t selected, int64_t *to, int64_t *counts, const int64_t **lists,
                           cbq_status *st) {
    const int64_t *from = (const int64_t *)(const void *)a->indices.data, n = a->k.shape[2];
    for (int64_t r = 0; r < rows; r++, from += selected, to += selected) {
        int64_t count = 0;
        for (int64_t i = 0; i < selected; i++) {
            if (from[i] < -1 || from[i] >= n)
                return cbq_fail(st, CBQ_BAD_VALUE, "indices: expected -1 to %lld, got %lld at %lld of list %lld", (long long)n - 1,
                                (long long)from[i], (long long)i, (long long)r);
            to[count] = from[i];
            count += from[i] >= 0;
        }
        for (int64_t b = r; b < (rows == 1 ? a->q.shape[0] : r + 1); b++) counts[b] = count, lists[b] = to;
    }
    return CBQ_OK;
}

static cbq_cache cache_of(const cbq_array *a) {
    return (cbq_cache){{a->data, a->strides[2], a->shape[3], a->dtype}, a->strides[0], a->strides[1]};
}

/* The memory that a call needs beside its arguments: one block, in the order of these. */
typedef struct {
    float *q;
    int64_t *counts, *list;
    const int64_t **lists;
} memory;

static cbq_code prepare(const cbq_sdpa_args *a, int64_t rows, int64_t selected, int64_t depth, memory *m, cbq_status *st) {
    if (a->indices.data && copy_lists(a, rows, selected, m->list, m->counts, m->lists, st)) return st->code;
    if (!a->indices.data) count_lengths(a, m->counts);
    memset(m->q, 0, (size_t)(a->q.shape[0] * a->q.shape[1] * depth) * 4);
    float *q = m->q;
    for (int64_t b = 0; b < a->q.shape[0]; b++)
        for (int64_t h = 0; h < a->q.shape[1]; h++, q += depth) cbq_row_to_floats(&a->q, b, h, a->level, a->scale, q);
    return CBQ_OK;
}

cbq_code cbq_sdpa(const cbq_sdpa_args *a, cbq_status *st) {
    if (check_shapes(a, st)) return st->code;
    const int64_t batch = a->q.shape[0], heads = a->q.shape[1], depth = cbq_padded_width(a->q.shape[2]);
    const int64_t rows = a->lists, selected = rows ? a->indices.bytes / 8 / rows : 0;
    if (a->indices.data && rows != 1 && rows != batch)
        return cbq_fail(st, CBQ_BAD_VALUE, "indices: expected 1 or %lld lists, got %lld", (long long)batch, (long long)rows);
    if ((double)batch * (double)heads * (double)depth > (double)(INT64_C(1) << 50)) return cbq_fail(st, CBQ_NO_MEMORY, "no memory for the queries");
    const int64_t q_bytes = batch * heads * depth * 4, bytes = q_bytes + 16 * batch + 8 * rows * selected;
    uint8_t *block = cbq_aligned_alloc(bytes);
    if (!block) return cbq_fail(st, CBQ_NO_MEMORY, "no memory for %lld bytes of queries and lists", (long long)bytes);
    memory m = {.q = (float *)(void *)block, .counts = (int64_t *)(void *)(block + q_bytes)};
    m.lists = (const int64_t **)(void *)(m.counts + batch);
    m.list = (int64_t *)(void *)(m.lists + batch);
    if (prepare(a, rows, selected, depth, &m, st) == CBQ_OK) {
        const cbq_attention_job job = {.level = a->level, .threads = a->threads, .batch = batch, .heads = heads, .groups = a->k.shape[1],
                                       .q = m.q, .depth = depth, .k = {cache_of(&a->k)}, .v = cache_of(&a->v), .parts = 1,
                                       .counts = m.counts, .lists = a->indices.data ? m.lists : NULL,
                                       .sink = (const float *)(const void *)a->sink.data, .out = a->out};
        cbq_run_attention(&job, st);
    }
    free(block);
    return st->code;
}
