/* Work on rows of elements, each of which depends on its own place only: cut into pieces for threads, and written past the cache
   where that pays. */
#pragma once
#include "operators.h"

enum { CBQ_MAX_OUTS = 4 };

typedef struct {
    const void *args;
    int64_t rows, n;    /* elements of a row */
    int outs, out_size; /* output rows of a row, and the bytes of their elements */
    /* Where the output rows of row r begin. */
    void (*place)(const void *args, int64_t r, uint8_t *y[CBQ_MAX_OUTS]);
    /* Elements `at` .. at + n - 1 of row r, to y; `past` as in operators/operators.h. */
    void (*fill)(const void *args, int64_t r, int64_t at, int64_t n, uint8_t *const y[CBQ_MAX_OUTS], int past);
} cbq_row_job;

/* Outputs of fewer elements than `alone` stay on the caller's thread; a thread takes `grain` at a time. */
void cbq_fill_rows(cbq_row_job *job, int64_t alone, int64_t grain, const cbq_how *how);

/* Elements below which arithmetic that memory limits stays on one thread, and a thread's piece of more. */
enum { CBQ_ROWS_ALONE = 1 << 19, CBQ_ROWS_GRAIN = 1 << 16 };

/* A copy past the cache of any bytes anywhere; the caller fences. */
void cbq_stream_bytes(const cbq_kernels *kernels, uint8_t *y, const uint8_t *from, int64_t bytes);
