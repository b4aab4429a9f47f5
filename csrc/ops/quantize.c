#include "quantize.h"

#include "../encode/improve.h"
#include "check.h"
#include "nonfinite_x.h"
#include "scratch.h"

/* Elements of the smallest piece of a thread, and those that it looks at before it encodes them, which then are in its
   first-level cache; with an importance matrix several rows, whose sums wait for each other less. With all pieces of 2^14 two
   threads were 1.6 times as fast as one at formats that go at the speed of memory, with 2^15 1.87 times, with larger ones before
   them 1.97 times (q1_0, Zen 5); in steps of 2^12 one thread reads 15 % faster than in larger ones. */
enum { PIECE = 1 << 15, STEP = 1 << 12, WEIGHTED_STEP = 1 << 14 };

/* One call's work. x is cut into units of `unit` elements: rows where there is an importance matrix, else blocks. */
typedef struct {
    const cbq_quantize_args *a;
    const cbq_format *f;
    cbq_encode_fn *encode;
    int64_t unit, step, source_bytes; /* step: units at a time, whose float32 fit a slot of scratch */
    cbq_scratch scratch; /* float32 of the pieces at work, where x is of another type */
    cbq_first_nonfinite nonfinite;
    _Atomic int out_of_memory;
} task;

static int is_float32(const task *t) { return t->source_bytes == 4; }

/* Elements from `begin` on as float32: in place, or converted. To be given back. */
static const float *take_floats(task *t, int64_t begin, int64_t n) {
    const uint8_t *x = t->a->x.data + begin * t->source_bytes;
    if (is_float32(t)) return (const float *)(const void *)x;
    uint8_t *slot = cbq_scratch_take(&t->scratch);
    t->a->level->kernels->to_float[t->a->source][CBQ_F32](x, slot, n);
    return (const float *)(const void *)slot;
}
static void give_floats(task *t, const float *x) {
    if (!is_float32(t)) cbq_scratch_give(&t->scratch, (uint8_t *)(uintptr_t)x);
}

static void look_at(task *t, int64_t begin, int64_t end) {
    int64_t first = begin * t->unit, n = (end - begin) * t->unit;
    if (cbq_is_behind_nonfinite(&t->nonfinite, first)) return;
    const float *x = take_floats(t, first, n);
    cbq_look_for_nonfinite(&t->nonfinite, t->a->level, x, first, n);
    give_floats(t, x);
}

static void encode(task *t, int64_t begin, int64_t end) {
    const int64_t blocks_of_unit = t->unit / t->f->elements, first = begin * t->unit, n = (end - begin) * t->unit;
    if (cbq_is_behind_nonfinite(&t->nonfinite, first)) return;
    const float *x = take_floats(t, first, n);
    cbq_encode_args e = {.x = x,
                         .importance = (const float *)(const void *)t->a->importance.data,
                         .n = (end - begin) * blocks_of_unit,
                         .row_blocks = t->a->k / t->f->elements,
                         .out = t->a->out.data + begin * blocks_of_unit * t->f->bytes};
    int refused = !t->a->allow_nonfinite && t->a->out_is_new && cbq_look_for_nonfinite(&t->nonfinite, t->a->level, x, first, n);
    if (!refused && t->encode(&e)) atomic_store(&t->out_of_memory, 1);
    else if (!refused && t->a->improve) cbq_improve(t->a->format, &e);
    give_floats(t, x);
}

/* A range may be all of x, where there is one thread. */
static void in_steps(task *t, int64_t begin, int64_t end, void (*step)(task *, int64_t, int64_t)) {
    for (; begin < end; begin += t->step) step(t, begin, end - begin < t->step ? end : begin + t->step);
}
static void look_at_range(void *context, int64_t begin, int64_t end) { in_steps(context, begin, end, look_at); }
static void encode_range(void *context, int64_t begin, int64_t end) { in_steps(context, begin, end, encode); }

static cbq_code check(const cbq_quantize_args *a, cbq_status *st) {
    const cbq_format *f = &cbq_formats[a->format];
    if (!a->level->encoders->encode[a->format]) return cbq_fail(st, CBQ_BAD_VALUE, "fmt: %s has no encoder", f->name);
    if (a->k % f->elements) return cbq_fail(st, CBQ_BAD_VALUE, "k=%lld is not a multiple of %d (%s)", (long long)a->k, f->elements, f->name);
    if (cbq_check_rows("x", a->x.bytes, a->rows, a->k * cbq_formats[a->source].bytes, st)) return st->code;
    if (cbq_check_rows("out", a->out.bytes, a->rows, a->k / f->elements * f->bytes, st)) return st->code;
    if (a->importance.data && cbq_check_rows("imatrix", a->importance.bytes, 1, a->k * 4, st)) return st->code;
    if (cbq_overlap(a->x, a->out)) return cbq_fail(st, CBQ_BAD_VALUE, "out: expected memory of its own, it overlaps x");
    if (cbq_overlap(a->importance, a->out)) return cbq_fail(st, CBQ_BAD_VALUE, "out: expected memory of its own, it overlaps imatrix");
    if (f->needs_imatrix && !a->importance.data) return cbq_fail(st, CBQ_BAD_VALUE, "imatrix: %s needs an importance matrix", f->name);
    return CBQ_OK;
}

cbq_code cbq_quantize(const cbq_quantize_args *a, cbq_status *st) {
    if (check(a, st)) return st->code;
    if (a->rows == 0 || a->k == 0) return CBQ_OK;
    const cbq_format *f = &cbq_formats[a->format];
    task t = {.a = a, .f = f, .encode = a->level->encoders->encode[a->format], .source_bytes = cbq_formats[a->source].bytes};
    t.unit = a->importance.data ? a->k : f->elements;
    atomic_init(&t.nonfinite.at, a->rows * a->k);
    const int64_t step = a->importance.data ? WEIGHTED_STEP : STEP;
    t.step = t.unit < step ? step / t.unit : 1;
    const int64_t piece = t.unit < PIECE ? PIECE / t.unit : 1;
    const int64_t units = a->rows * a->k / t.unit;
    const int threads = a->rows * a->k < CBQ_QUANTIZE_MIN_PARALLEL ? 1 : cbq_resolve_threads(a->threads);
    const cbq_encode_args nothing = {.importance = (const float *)(const void *)a->importance.data};
    if (t.encode(&nothing)) return cbq_fail(st, CBQ_NO_MEMORY, "no memory for the tables of %s", f->name);
    if (!is_float32(&t) && cbq_scratch_open(&t.scratch, cbq_most_pieces(units, piece, threads), t.step * t.unit * 4, st)) goto done;
    if (!a->allow_nonfinite && !a->out_is_new) cbq_parallel(units, piece, threads, look_at_range, &t);
    if (cbq_check_finite(&t.nonfinite, a->rows * a->k, a->k, st)) goto done;
    cbq_parallel(units, piece, threads, encode_range, &t);
    if (cbq_check_finite(&t.nonfinite, a->rows * a->k, a->k, st)) goto done;
    if (atomic_load(&t.out_of_memory)) cbq_fail(st, CBQ_NO_MEMORY, "no memory to encode %s", f->name);
done:
    if (!is_float32(&t)) cbq_scratch_close(&t.scratch);
    return st->code;
}
