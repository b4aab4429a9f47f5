#include "gather.h"

#include <stdlib.h>

#include "../check.h"
#include "../scratch.h"
#include "top.h"

/* What a list is made of. */
typedef struct {
    const int64_t *topk;
    int64_t chosen, n, window_begin;
} source;

static source source_of(const cbq_gather_args *a, int64_t r) {
    const int64_t *topk = (const int64_t *)(const void *)a->topk.data, n = ((const int64_t *)(const void *)a->n.data)[r];
    const int64_t window = ((const int64_t *)(const void *)a->window.data)[r];
    return (source){topk + r * a->chosen, a->chosen, n, window < n ? n - window : 0};
}

/* The chosen positions before the window, rising, each once; returns how many. */
static int64_t sorted_row(const source *s, uint64_t *memory, const uint64_t **sorted) {
    int64_t n = 0, kept = 0;
    for (int64_t i = 0; i < s->chosen; i++) {
        memory[n] = (uint64_t)s->topk[i] << 32;
        n += s->topk[i] >= 0 && s->topk[i] < s->window_begin;
    }
    uint64_t *rising = cbq_sort_by_high(memory, memory + s->chosen, n);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || rising[i] != rising[i - 1]) rising[kept++] = rising[i];
    *sorted = rising;
    return kept;
}

static void write_row(const source *s, int32_t *to, int64_t room, const uint64_t *sorted, int64_t n) {
    int64_t i = 0;
    for (; i < n; i++) to[i] = (int32_t)(sorted[i] >> 32);
    for (int64_t at = s->window_begin; at < s->n; at++) to[i++] = (int32_t)at;
    for (; i < room; i++) to[i] = -1;
}

static cbq_code check_numbers(const char *name, cbq_view numbers, int64_t rows, cbq_status *st) {
    const int64_t *each = (const int64_t *)(const void *)numbers.data;
    if (cbq_check_rows(name, numbers.bytes, rows, 8, st)) return st->code;
    for (int64_t r = 0; r < rows; r++)
        if (each[r] < 0 || each[r] > INT32_MAX)
            return cbq_fail(st, CBQ_BAD_VALUE, "%s: expected 0 to 2147483647, got %lld", name, (long long)each[r]);
    return CBQ_OK;
}
static cbq_code check(const cbq_gather_args *a, cbq_status *st) {
    if (check_numbers("n_kv", a->n, a->rows, st) || check_numbers("window", a->window, a->rows, st)) return st->code;
    if (cbq_check_rows("topk", a->topk.bytes, a->rows, a->chosen * 8, st) || cbq_check_rows("out", a->out.bytes, a->rows, a->room * 4, st) ||
        cbq_check_rows("counts", a->counts.bytes, a->rows, 8, st)) return st->code;
    for (int64_t r = 0; r < a->rows; r++) {
        const source s = source_of(a, r);
        for (int64_t i = 0; i < s.chosen; i++)
            if (s.topk[i] < -1 || s.topk[i] >= s.n)
                return cbq_fail(st, CBQ_BAD_VALUE, "topk: expected -1 to %lld, got %lld in list %lld", (long long)s.n - 1, (long long)s.topk[i],
                                (long long)r);
    }
    return CBQ_OK;
}

cbq_code cbq_gather_list(const cbq_gather_args *a, cbq_status *st) {
    if (check(a, st)) return st->code;
    int64_t *counts = (int64_t *)(void *)a->counts.data, most = 0;
    uint64_t *memory = cbq_aligned_alloc(16 * a->chosen);
    const uint64_t *sorted;
    if (!memory) return cbq_fail(st, CBQ_NO_MEMORY, "no memory for %lld positions", (long long)a->chosen);
    for (int64_t r = 0; r < a->rows; r++) {
        const source s = source_of(a, r);
        counts[r] = sorted_row(&s, memory, &sorted) + s.n - s.window_begin;
        most = counts[r] > most ? counts[r] : most;
    }
    for (int64_t r = 0; r < a->rows && most <= a->room; r++) {
        const source s = source_of(a, r);
        const int64_t n = sorted_row(&s, memory, &sorted);
        write_row(&s, (int32_t *)(void *)a->out.data + r * a->room, a->room, sorted, n);
    }
    free(memory);
    return CBQ_OK;
}
