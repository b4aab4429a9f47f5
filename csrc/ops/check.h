/* Checks that several operations share. */
#pragma once
#include "../registry.h"
#include "../status.h"
#include "../threads.h"
#include "../view.h"

/* The number of blocks in a buffer that must hold whole ones. */
static inline cbq_code cbq_count_blocks(const cbq_format *f, cbq_view blocks, int64_t *n, cbq_status *st) {
    if (blocks.bytes % f->bytes)
        return cbq_fail(st, CBQ_BAD_VALUE, "buf: %lld bytes are not a multiple of %d (one block of %s)", (long long)blocks.bytes, f->bytes, f->name);
    *n = blocks.bytes / f->bytes;
    return CBQ_OK;
}

/* The threads of a call: what was asked for, or the default where that is 0. */
static inline int cbq_resolve_threads(int asked) { return asked > 0 ? asked : cbq_num_threads(); }

/* Are there exactly so many rows? */
static inline cbq_code cbq_check_rows(const char *name, int64_t got, int64_t rows, int64_t row_bytes, cbq_status *st) {
    if (row_bytes ? got / row_bytes == rows && got % row_bytes == 0 : got == 0) return CBQ_OK;
    return cbq_fail(st, CBQ_BAD_VALUE, "%s: expected %lld rows of %lld bytes, got %lld bytes", name, (long long)rows, (long long)row_bytes,
                    (long long)got);
}
