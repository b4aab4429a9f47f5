#include "dequant.h"

#include "check.h"
#include "write_floats.h"

cbq_code cbq_dequant(const cbq_dequant_args *a, cbq_status *st) {
    const cbq_format *f = &cbq_formats[a->format];
    const int64_t size = a->dtype == CBQ_F32 ? 4 : 2;
    int64_t n = 0;
    if (cbq_count_blocks(f, a->blocks, &n, st)) return st->code;
    if (a->out.bytes % (f->elements * size) || a->out.bytes / (f->elements * size) != n)
        return cbq_fail(st, CBQ_BAD_VALUE, "out: expected %lld bytes for %lld blocks of %s, got %lld", (long long)(n * f->elements * size),
                        (long long)n, f->name, (long long)a->out.bytes);
    if (cbq_overlap(a->blocks, a->out)) return cbq_fail(st, CBQ_BAD_VALUE, "out: expected memory of its own, it overlaps buf");

    /* Only a large call asks how many there are: that is a system call. */
    int threads = n * f->elements < CBQ_DEQUANT_MIN_PARALLEL ? 1 : cbq_resolve_threads(a->threads);
    cbq_float_job job = {.decode = a->level->kernels->to_float[a->format][a->dtype],
                         .kernels = a->level->kernels,
                         .blocks = a->blocks.data,
                         .out = a->out.data,
                         .block_bytes = f->bytes,
                         .out_bytes = f->elements * size};
    cbq_write_floats(&job, n, f->elements, threads, a->stream);
    return CBQ_OK;
}
