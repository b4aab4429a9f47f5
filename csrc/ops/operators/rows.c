#include "rows.h"

#include <stdatomic.h>

#include "../check.h"
#include "../write_floats.h"

enum { LINE = 64 };

/* Elements in front of the first line of all outputs; -1 where those lie differently in their lines. */
static int64_t head_of(const cbq_row_job *j, uint8_t *const y[], int64_t at) {
    const uintptr_t begin = (uintptr_t)y[0] + (uintptr_t)(at * j->out_size);
    int64_t bytes = (int64_t)(-begin % LINE);
    for (int i = 1; i < j->outs; i++)
        if (((uintptr_t)y[i] - (uintptr_t)y[0]) % LINE) return -1;
    return bytes % j->out_size ? -1 : bytes / j->out_size;
}

static void fill(const cbq_row_job *j, int64_t r, int64_t at, int64_t n, uint8_t *const y[], int past) {
    uint8_t *to[CBQ_MAX_OUTS] = {0};
    for (int i = 0; i < j->outs; i++) to[i] = y[i] + at * j->out_size;
    if (n > 0) j->fill(j->args, r, at, n, to, past);
}
static void fill_part(const cbq_row_job *j, int64_t r, int64_t at, int64_t n, uint8_t *const y[]) { fill(j, r, at, n, y, 0); }

/* Past the cache straight from registers: through a tile, as decoding does it, four outputs of 16 KiB reach 0.75 of this (Zen 5). What
   is left at both ends is stored in the ordinary way. */
static void stream_part(const cbq_row_job *j, int64_t r, int64_t at, int64_t n, uint8_t *const y[]) {
    const int64_t head = head_of(j, y, at);
    if (head < 0 || head > n) {
        fill(j, r, at, n, y, 0);
        return;
    }
    const int64_t whole = (n - head) / CBQ_PIECE * CBQ_PIECE;
    fill(j, r, at, head, y, 0);
    fill(j, r, at + head, whole, y, 1);
    fill(j, r, at + head + whole, n - head - whole, y, 0);
}

void cbq_stream_bytes(const cbq_kernels *kernels, uint8_t *y, const uint8_t *from, int64_t bytes) {
    const int64_t in_front = (int64_t)(-(uintptr_t)y % LINE), head = in_front < bytes ? in_front : bytes, whole = (bytes - head) / LINE * LINE;
    memcpy(y, from, (size_t)head);
    kernels->stream_copy(y + head, from + head, whole);
    memcpy(y + head + whole, from + head + whole, (size_t)(bytes - head - whole));
}

/* Elements begin .. end - 1 of all rows, part of a row by part of a row. */
static void in_parts(const cbq_row_job *j, int64_t begin, int64_t end,
                     void (*part)(const cbq_row_job *j, int64_t r, int64_t at, int64_t n, uint8_t *const y[])) {
    while (begin < end) {
        int64_t r = begin / j->n, at = begin % j->n, n = end - begin < j->n - at ? end - begin : j->n - at;
        uint8_t *y[CBQ_MAX_OUTS];
        j->place(j->args, r, y);
        part(j, r, at, n, y);
        begin += n;
    }
}
static void through_cache(void *context, int64_t begin, int64_t end) { in_parts(context, begin, end, fill_part); }
static void past_cache(void *context, int64_t begin, int64_t end) {
    in_parts(context, begin, end, stream_part);
    atomic_thread_fence(memory_order_seq_cst); /* streaming stores are weakly ordered: see write_floats.c */
}

void cbq_fill_rows(cbq_row_job *job, int64_t alone, int64_t grain, const cbq_how *how) {
    const int64_t elements = job->rows * job->n;
    const int threads = elements < alone ? 1 : cbq_resolve_threads(how->threads);
    const int past = cbq_should_stream(how->level->kernels, elements * job->outs * job->out_size, threads, how->stream);
    cbq_parallel(elements, grain, threads, past ? past_cache : through_cache, job);
}
