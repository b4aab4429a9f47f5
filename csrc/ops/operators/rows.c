#include "rows.h"

#include <stdatomic.h>

#include "../check.h"
#include "../write_floats.h"

/* What is on its way past the cache: see write_floats.c. */
enum { TILE_BYTES = 1024, LINE = 64 };

/* Elements in front of the first line of all outputs; -1 where those lie differently in their lines. */
static int64_t head_of(const cbq_row_job *j, uint8_t *const y[], int64_t at) {
    const uintptr_t begin = (uintptr_t)y[0] + (uintptr_t)(at * j->out_size);
    int64_t bytes = (int64_t)(-begin % LINE);
    for (int i = 1; i < j->outs; i++)
        if (((uintptr_t)y[i] - (uintptr_t)y[0]) % LINE) return -1;
    return bytes % j->out_size ? -1 : bytes / j->out_size;
}

static void fill_at(const cbq_row_job *j, int64_t r, int64_t at, int64_t n, uint8_t *const y[]) {
    uint8_t *to[CBQ_MAX_OUTS] = {0};
    for (int i = 0; i < j->outs; i++) to[i] = y[i] + at * j->out_size;
    if (n > 0) j->fill(j->args, r, at, n, to);
}

/* Whole lines through a tile; what is left at both ends is stored in the ordinary way. */
static void stream_part(const cbq_row_job *j, int64_t r, int64_t at, int64_t n, uint8_t *const y[]) {
    uint8_t tiles[CBQ_MAX_OUTS][TILE_BYTES] __attribute__((aligned(LINE)));
    uint8_t *const tile[CBQ_MAX_OUTS] = {tiles[0], tiles[1], tiles[2], tiles[3]};
    const int64_t line = LINE / j->out_size, most = TILE_BYTES / j->out_size, head = head_of(j, y, at);
    if (head < 0 || head > n) {
        fill_at(j, r, at, n, y);
        return;
    }
    fill_at(j, r, at, head, y);
    int64_t i = at + head, whole = (n - head) / line * line;
    for (int64_t end = i + whole; i < end; i += most) {
        int64_t count = end - i < most ? end - i : most;
        j->fill(j->args, r, i, count, tile);
        for (int k = 0; k < j->outs; k++) j->kernels->stream_copy(y[k] + i * j->out_size, tile[k], count * j->out_size);
    }
    fill_at(j, r, at + head + whole, n - head - whole, y);
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
static void through_cache(void *context, int64_t begin, int64_t end) { in_parts(context, begin, end, fill_at); }
static void past_cache(void *context, int64_t begin, int64_t end) {
    in_parts(context, begin, end, stream_part);
    atomic_thread_fence(memory_order_seq_cst); /* streaming stores are weakly ordered: see write_floats.c */
}

void cbq_fill_rows(cbq_row_job *job, int64_t alone, int64_t grain, const cbq_how *how) {
    const int64_t elements = job->rows * job->n;
    const int threads = elements < alone ? 1 : cbq_resolve_threads(how->threads);
    job->kernels = how->level->kernels;
    const int past = cbq_should_stream(job->kernels, elements * job->outs * job->out_size, threads, how->stream);
    cbq_parallel(elements, grain, threads, past ? past_cache : through_cache, job);
}
