#include "gather.h"

#include <stdlib.h>

#include "../check.h"
#include "../scratch.h"
#include "top.h"

static int64_t window_begin(const cbq_gather_args *a) { return a->window < a->n ? a->n - a->window : 0; }

/* The chosen positions before the window, rising, each once; returns how many. */
static int64_t sorted_row(const cbq_gather_args *a, const int64_t *topk, uint64_t *memory, const uint64_t **sorted) {
    const int64_t window = window_begin(a);
    int64_t n = 0, kept = 0;
    for (int64_t i = 0; i < a->chosen; i++) {
        memory[n] = (uint64_t)topk[i] << 32;
        n += topk[i] >= 0 && topk[i] < window;
    }
    uint64_t *rising = cbq_sort_by_high(memory, memory + a->chosen, n);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || rising[i] != rising[i - 1]) rising[kept++] = rising[i];
    *sorted = rising;
    return kept;
}

static void write_row(const cbq_gather_args *a, int32_t *to, const uint64_t *sorted, int64_t n) {
    int64_t i = 0;
    for (; i < n; i++) to[i] = (int32_t)(sorted[i] >> 32);
    for (int64_t at = window_begin(a); at < a->n; at++) to[i++] = (int32_t)at;
    for (; i < a->room; i++) to[i] = -1;
}

static cbq_code check(const cbq_gather_args *a, cbq_status *st) {
    const int64_t *topk = (const int64_t *)(const void *)a->topk.data;
    if (a->n < 0 || a->n > INT32_MAX) return cbq_fail(st, CBQ_BAD_VALUE, "n_kv: expected 0 to 2147483647, got %lld", (long long)a->n);
    if (a->window < 0) return cbq_fail(st, CBQ_BAD_VALUE, "window: expected a number from 0, got %lld", (long long)a->window);
    if (cbq_check_rows("topk", a->topk.bytes, a->rows, a->chosen * 8, st) || cbq_check_rows("out", a->out.bytes, a->rows, a->room * 4, st) ||
        cbq_check_rows("counts", a->counts.bytes, a->rows, 8, st)) return st->code;
    for (int64_t i = 0; i < a->rows * a->chosen; i++)
        if (topk[i] < -1 || topk[i] >= a->n)
            return cbq_fail(st, CBQ_BAD_VALUE, "topk: expected -1 to %lld, got %lld", (long long)a->n - 1, (long long)topk[i]);
    return CBQ_OK;
}

cbq_code cbq_gather_list(const cbq_gather_args *a, cbq_status *st) {
    if (check(a, st)) return st->code;
    const int64_t *topk = (const int64_t *)(const void *)a->topk.data, last = a->n - window_begin(a);
    int64_t *counts = (int64_t *)(void *)a->counts.data, most = 0;
    uint64_t *memory = cbq_aligned_alloc(16 * a->chosen);
    const uint64_t *sorted;
    if (!memory) return cbq_fail(st, CBQ_NO_MEMORY, "no memory for %lld positions", (long long)a->chosen);
    for (int64_t r = 0; r < a->rows; r++) {
        counts[r] = sorted_row(a, topk + r * a->chosen, memory, &sorted) + last;
        most = counts[r] > most ? counts[r] : most;
    }
    for (int64_t r = 0; r < a->rows && most <= a->room; r++) {
        int64_t n = sorted_row(a, topk + r * a->chosen, memory, &sorted);
        write_row(a, (int32_t *)(void *)a->out.data + r * a->room, sorted, n);
    }
    free(memory);
    return CBQ_OK;
}
