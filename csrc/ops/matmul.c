#include "matmul.h"

#include "check.h"
#include "matmul_float.h"
#include "matmul_int.h"
#include "weights.h"

int cbq_matmul_is_large(int64_t m, int64_t n, int64_t k) {
    /* In units of a weight's decoding, which is as much work as eight multiply-adds; waking a thread takes as long as
       some 300 000 of them. */
    double work = (double)n * (double)k * (1 + (double)m / 8);
    return work >= 1 << 20;
}

#define PLANE_BYTES(g) \
    {.name = "planes as bytes", .elements = 32, .bytes = CBQ_PLANE_BYTES##g##_SIZE, .group = g, .kind = CBQ_KIND_SIGNED, .bias = CBQ_BIAS(8), .bits = 8}
const cbq_format cbq_plane_bytes16 = PLANE_BYTES(16), cbq_plane_bytes32 = PLANE_BYTES(32);

static const int dtype_bytes[] = {[CBQ_F32] = 4, [CBQ_F16] = 2, [CBQ_BF16] = 2};

static cbq_code check_blocks(const cbq_matmul_args *a, cbq_status *st) {
    const cbq_format *f = &cbq_formats[a->format];
    if (a->k % f->elements) return cbq_fail(st, CBQ_BAD_VALUE, "k=%lld is not a multiple of %d (%s)", (long long)a->k, f->elements, f->name);
    if (cbq_check_rows("w", a->w.bytes, a->n, a->k / f->elements * f->bytes, st)) return st->code;
    if (cbq_overlap(a->w, a->out)) return cbq_fail(st, CBQ_BAD_VALUE, "out: expected memory of its own, it overlaps w");
    if (f->kind == CBQ_KIND_PLAIN && a->precision >= CBQ_PRECISION_Q8)
        return cbq_fail(st, CBQ_BAD_VALUE, "precision: %s has no integer codes, it knows f32 and bf16 only", f->name);
    return CBQ_OK;
}

static cbq_code check_planes(const cbq_matmul_args *a, cbq_status *st) {
    const cbq_plane_format *f = &cbq_plane_formats[a->planes->format];
    if (cbq_check_planes(a->planes, st)) return st->code;
    if (cbq_overlap(a->planes->codes, a->out) || cbq_overlap(a->planes->scales, a->out))
        return cbq_fail(st, CBQ_BAD_VALUE, "out: expected memory of its own, it overlaps w");
    if (a->precision < CBQ_PRECISION_Q8) return CBQ_OK;
    if (!f->multiple) return cbq_fail(st, CBQ_BAD_VALUE, "precision: codes of %s are no integers, it knows f32 and bf16 only", f->name);
    if (a->k % cbq_plane_bytes16.elements)
        return cbq_fail(st, CBQ_BAD_VALUE, "precision: q8 and q16 want rows of a multiple of %d elements, got %lld; f32 and bf16 take any",
                        cbq_plane_bytes16.elements, (long long)a->k);
    return CBQ_OK;
}

static cbq_code check(const cbq_matmul_args *a, cbq_status *st) {
    if (a->planes ? check_planes(a, st) : check_blocks(a, st)) return st->code;
    if (cbq_check_rows("x", a->x.bytes, a->m, a->k * dtype_bytes[a->dtype], st)) return st->code;
    if (cbq_check_rows("out", a->out.bytes, a->m, a->n * dtype_bytes[a->out_dtype], st)) return st->code;
    if (cbq_overlap(a->x, a->out)) return cbq_fail(st, CBQ_BAD_VALUE, "out: expected memory of its own, it overlaps x");
    return CBQ_OK;
}

cbq_code cbq_matmul(const cbq_matmul_args *a, cbq_status *st) {
    if (check(a, st)) return st->code;
    if (a->m == 0 || a->n == 0) return CBQ_OK;
    if (a->k == 0) {
        memset(a->out.data, 0, (size_t)a->out.bytes);
        return CBQ_OK;
    }
    int threads = cbq_matmul_is_large(a->m, a->n, a->k) ? cbq_resolve_threads(a->threads) : 1;
    return a->precision >= CBQ_PRECISION_Q8 ? cbq_matmul_int(a, threads, st) : cbq_matmul_float(a, threads, st);
}
