/* Angles of rotary positions in double, and the rows that they turn. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "../check.h"
#include "../scratch.h"
#include "../write_floats.h"
#include "operators.h"
#include "rows.h"
#include "shapes.h"

/* position = base + rest, where base is a multiple of STEP: the sines of whole rests are a table, those of a base serve all positions
   of its stretch, and the theorem of addition gives the others. Each is a function of the position alone, so that a result does not
   depend on what else is in the batch; errors are some 1e-16 in double where the float32 that is kept has 6e-8. */
enum { STEP = 64 };

typedef struct {
    const cbq_rope_args *a;
    int64_t half, tokens, heads, leading;
    const double *positions;
    double *rates; /* angle of a position, by pair */
    double *rests; /* [STEP][2][half]: cosines and sines of those that are wanted */
    int in_place, size;
    int64_t ahead; /* from a row to one that is asked for meanwhile */
    const cbq_kernels *past; /* NULL: stores go through the cache */
    void (*turn)(const cbq_rope_row *row);
    cbq_scratch scratch;
} task;

/* A thread's: angles of the base, the tables of a token, a row on its way past the cache. */
typedef struct {
    double base; /* NaN: none yet */
    int64_t token;
    double *of_base, *of_rest; /* [2][half] */
    float *cosines, *sines, *once; /* the last: of neighbours, each number once */
    uint8_t *row;
} slot;
enum { SLOT_HEAD = 64 };
CBQ_STATIC_ASSERT(sizeof(slot) <= SLOT_HEAD, "a slot's head does not fit");
static int64_t slot_bytes(const task *t) {
    return SLOT_HEAD + t->half * 4 * (int64_t)sizeof(double) + t->a->n_rot * (4 + 4 + 4 + 4);
}
static slot *take_slot(task *t) {
    uint8_t *memory = cbq_scratch_take(&t->scratch);
    slot *s = (slot *)(void *)memory;
    s->base = NAN, s->token = -1;
    s->of_base = (double *)(void *)(memory + SLOT_HEAD);
    s->of_rest = s->of_base + 2 * t->half;
    s->cosines = (float *)(void *)(s->of_rest + 2 * t->half);
    s->sines = s->cosines + t->a->n_rot;
    s->once = s->sines + t->a->n_rot;
    s->row = (uint8_t *)(s->once + t->a->n_rot);
    return s;
}

static void angles_of(const task *t, double position, double *to) {
    for (int64_t i = 0; i < t->half; i++) {
        const double radians = position * t->rates[i];
        to[i] = cos(radians), to[t->half + i] = sin(radians);
    }
}
static double base_of(double position) { return floor(position / STEP) * STEP; }
/* (A rest of a position just below a base is rounded up to STEP.) */
static int is_in_table(double rest) { return rest == floor(rest) && rest >= 0 && rest < STEP; }

/* Tables for a token, in the form that rows are turned with (operators.h). */
static void fill_tables(const task *t, slot *s, int64_t token) {
    const int64_t half = t->half;
    const double position = t->positions[token], base = base_of(position), rest = position - base, sign = t->a->inverse ? -1 : 1;
    if (s->base != base) angles_of(t, base, s->of_base);
    const double *b = s->of_base, *r = s->of_rest;
    if (is_in_table(rest)) r = t->rests + (int64_t)rest * 2 * half;
    else angles_of(t, rest, s->of_rest);
    float *const cosines = t->a->neighbours ? s->once : s->cosines, *const sines = t->a->neighbours ? s->once + half : s->sines;
    for (int64_t i = 0; i < half; i++) { /* two loops, which the compiler makes vectors of */
        cosines[i] = (float)(b[i] * r[i] - b[half + i] * r[half + i]);
        sines[i] = (float)(sign * (b[half + i] * r[i] + b[i] * r[half + i]));
    }
    for (int64_t i = 0; i < half && t->a->neighbours; i++) {
        s->cosines[2 * i] = cosines[i], s->cosines[2 * i + 1] = cosines[i];
        s->sines[2 * i] = -sines[i], s->sines[2 * i + 1] = sines[i];
    }
    s->base = base, s->token = token;
}

/* What comes before the elements that are turned, and then these. */
static void turn_row(const task *t, slot *s, const uint8_t *x, uint8_t *y) {
    const int64_t kept = (t->a->x.shape[t->a->x.ndim - 1] - t->a->n_rot) * t->size, turned = t->a->n_rot * t->size;
    if (t->in_place) cbq_prefetch((uintptr_t)x + (uintptr_t)(t->ahead + kept), turned);
    else cbq_prefetch((uintptr_t)x + (uintptr_t)t->ahead, kept + turned);
    const int lines = t->past && (uintptr_t)(y + kept) % 64 == 0 && turned / 2 % 64 == 0;
    cbq_rope_row row = {x + kept, t->past && !lines ? s->row : y + kept, s->cosines, s->sines, t->a->n_rot, lines};
    if (t->past) cbq_stream_bytes(t->past, y, x, kept);
    else if (!t->in_place) memcpy(y, x, (size_t)kept);
    t->turn(&row);
    if (t->past && !lines) cbq_stream_bytes(t->past, y + kept, s->row, turned);
}

/* Some rows, about CBQ_AHEAD bytes: rows of 2 KiB of float32 reach 0.92 of the speed of memory so, 0.71 without (Zen 5, one thread). */
static int64_t some_rows(int64_t stride) { return stride > 0 && stride < CBQ_AHEAD ? (CBQ_AHEAD + stride - 1) / stride * stride : stride; }

/* Where entry l of the axes before those of tokens and heads begins. */
static uint8_t *leading_at(const cbq_array *a, int64_t l) {
    uint8_t *at = a->data;
    for (int axis = a->ndim - 4; axis >= 0; l /= a->shape[axis--]) at += l % a->shape[axis] * a->strides[axis];
    return at;
}
static int64_t token_stride(const cbq_array *a) { return a->strides[a->ndim == 2 ? 0 : a->ndim - 3]; }
static int64_t head_stride(const cbq_array *a) { return a->ndim == 2 ? 0 : a->strides[a->ndim - 2]; }

/* Items are the entries of the leading axes of token 0, then those of token 1 .. */
static void turn_range(void *context, int64_t begin, int64_t end) {
    task *t = context;
    const cbq_array *x = &t->a->x, *out = &t->a->out;
    slot *s = take_slot(t);
    for (; begin < end; begin++) {
        const int64_t token = begin / t->leading, l = begin % t->leading;
        const uint8_t *from = leading_at(x, l) + token * token_stride(x);
        uint8_t *to = leading_at(out, l) + token * token_stride(out);
        if (s->token != token) fill_tables(t, s, token);
        for (int64_t h = 0; h < t->heads; h++) turn_row(t, s, from + h * head_stride(x), to + h * head_stride(out));
    }
    if (t->past) atomic_thread_fence(memory_order_seq_cst); /* streaming stores are weakly ordered: see write_floats.c */
    cbq_scratch_give(&t->scratch, (uint8_t *)s);
}

/* Angles of what a position and a rest of it turn each pair by. */
static cbq_code fill_rests(task *t, cbq_status *st) {
    uint8_t wanted[STEP] = {0};
    t->rates = malloc((size_t)t->half * sizeof(double));
    t->rests = malloc((size_t)(STEP * 2 * t->half) * sizeof(double));
    if (!t->rates || !t->rests) return cbq_fail(st, CBQ_NO_MEMORY, "no memory for the angles of %lld pairs", (long long)t->half);
    const double *given = (const double *)(const void *)t->a->frequencies.data;
    for (int64_t i = 0; i < t->half; i++) t->rates[i] = given ? given[i] : pow(t->a->theta, -2.0 * (double)i / (double)t->a->n_rot);
    for (int64_t token = 0; token < t->tokens; token++) {
        const double rest = t->positions[token] - base_of(t->positions[token]);
        if (is_in_table(rest)) wanted[(int)rest] = 1;
    }
    for (int rest = 0; rest < STEP; rest++)
        if (wanted[rest]) angles_of(t, rest, t->rests + rest * 2 * t->half);
    return CBQ_OK;
}

static cbq_code check_numbers(const char *name, cbq_view numbers, int64_t n, cbq_status *st) {
    const double *values = (const double *)(const void *)numbers.data;
    if (numbers.bytes != n * 8)
        return cbq_fail(st, CBQ_BAD_VALUE, "%s: expected %lld, got %lld bytes", name, (long long)n, (long long)numbers.bytes);
    for (int64_t i = 0; i < n; i++) /* whole numbers that a double holds, and products of two that it holds */
        if (!(fabs(values[i]) <= 0x1p53)) return cbq_fail(st, CBQ_BAD_VALUE, "%s: expected finite numbers up to 2^53, got %g", name, values[i]);
    return CBQ_OK;
}

static cbq_code check(const cbq_rope_args *a, cbq_status *st) {
    const int last = a->x.ndim - 1;
    if (last < 1) return cbq_fail(st, CBQ_BAD_VALUE, "x: expected two dimensions or more, got %d", a->x.ndim);
    if (cbq_check_shape(&a->out, "out", a->x.ndim, a->x.shape, st)) return st->code;
    if (cbq_check_dense(&a->x, "x", last, st) || cbq_check_dense(&a->out, "out", last, st)) return st->code;
    if (a->out.dtype != a->x.dtype) return cbq_fail(st, CBQ_BAD_TYPE, "out: expected the dtype of x");
    if (a->n_rot < 2 || a->n_rot % 2 || a->n_rot > a->x.shape[last])
        return cbq_fail(st, CBQ_BAD_VALUE, "n_rot: expected an even number from 2 to %lld, got %lld", (long long)a->x.shape[last],
                        (long long)a->n_rot);
    if (a->frequencies.data && check_numbers("frequencies", a->frequencies, a->n_rot / 2, st)) return st->code;
    return check_numbers("positions", a->positions, a->x.shape[last == 1 ? 0 : last - 2], st);
}

cbq_code cbq_rope(const cbq_rope_args *a, cbq_status *st) {
    if (check(a, st)) return st->code;
    const cbq_array *x = &a->x;
    const int64_t elements = cbq_elements(x), columns = x->shape[x->ndim - 1];
    if (elements == 0) return CBQ_OK;
    task t = {.a = a, .half = a->n_rot / 2, .positions = (const double *)(const void *)a->positions.data, .size = cbq_float_bytes(x->dtype)};
    t.tokens = x->shape[x->ndim == 2 ? 0 : x->ndim - 3], t.heads = x->ndim == 2 ? 1 : x->shape[x->ndim - 2];
    t.leading = elements / (t.tokens * t.heads * columns), t.in_place = x->data == a->out.data;
    t.ahead = some_rows(t.heads > 1 ? head_stride(x) : token_stride(x));
    t.turn = a->how.level->operators->rope[a->neighbours][x->dtype];
    const int64_t touched = t.in_place ? elements / columns * a->n_rot : elements, items = t.tokens * t.leading;
    const int64_t grain = CBQ_ROWS_GRAIN / 2 / (touched / items + 1) + 1;
    const int threads = touched < CBQ_ROWS_ALONE / 4 ? 1 : cbq_resolve_threads(a->how.threads);
    const cbq_kernels *kernels = a->how.level->kernels;
    if (!t.in_place && cbq_should_stream(kernels, elements * t.size, threads, a->how.stream)) t.past = kernels;
    if (fill_rests(&t, st) == CBQ_OK && cbq_scratch_open(&t.scratch, cbq_most_pieces(items, grain, threads), slot_bytes(&t), st) == CBQ_OK)
        cbq_parallel(items, grain, threads, turn_range, &t);
    cbq_scratch_close(&t.scratch);
    free(t.rates);
    free(t.rests);
    return st->code;
}
