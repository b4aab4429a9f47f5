#include <math.h>
#include <stdlib.h>

#include "../check.h"
#include "../scratch.h"
#include "operators.h"
#include "shapes.h"
#include "widen.h"

/* An entry of a column costs some 1.5 ns, and to wake a thread as much as 20 000 of them. */
enum { ALONE = 1 << 16, GRAIN = 1 << 14 };
enum { ENTRIES = CBQ_POOL_ENTRIES, COLUMNS = CBQ_POOL_COLUMNS };

/* Scratch memory of a thread. In the end, where a window has one gate for all columns, those that are not -inf, and then the numbers
   of their entries. */
typedef struct {
    cbq_pool_state state;
    float gate[ENTRIES][COLUMNS], kv[ENTRIES][COLUMNS], result[COLUMNS], gates[];
} slot;

typedef struct {
    const cbq_pool_args *a;
    const cbq_operators *o;
    const uint8_t *ape; /* float32 [P, D], rows ape_stride bytes apart */
    int64_t ape_stride, tiles;
    int one_gate;
    cbq_scratch scratch;
} task;

static int64_t room_for_gates(int64_t entries) { return (entries + 15) / 16 * 16; }
static int64_t slot_bytes(int64_t entries) { return (int64_t)sizeof(slot) + room_for_gates(entries) * (4 + 8); }

static const uint8_t *entry(const cbq_array *a, int64_t w, int64_t p, int64_t column) {
    return a->data + w * a->strides[0] + p * a->strides[1] + column * cbq_float_bytes(a->dtype);
}

/* Gates of entry p in n columns from c on; one that all columns share is repeated. */
static const float *gates_of(const task *t, slot *s, int k, int64_t w, int64_t p, int64_t c, int64_t n) {
    const cbq_array *gate = &t->a->gate;
    if (!t->one_gate) return cbq_widen(t->o, entry(gate, w, p, c), gate->dtype, n, s->gate[k]);
    float g = cbq_float_at(entry(gate, w, p, 0), gate->dtype);
    for (int64_t i = 0; i < n; i++) s->gate[k][i] = g;
    return s->gate[k];
}
static void set_entry(const task *t, slot *s, cbq_pool_block *b, int k, int64_t w, int64_t p, int64_t c) {
    const cbq_array *kv = &t->a->kv;
    b->kv[k] = cbq_widen(t->o, entry(kv, w, p, c), kv->dtype, b->n, s->kv[k]);
    b->ape[k] = (const float *)(const void *)(t->ape + p * t->ape_stride + c * 4);
}

/* A gate for each column: all entries, block by block. */
static void pool_columns(const task *t, slot *s, int64_t w, int64_t c, int64_t n) {
    const int64_t entries = t->a->kv.shape[1];
    cbq_pool_block b = {.state = &s->state, .n = n, .is_first = 1, .ape_on_gate = t->a->ape_on_gate};
    for (int64_t first = 0; first < entries || b.is_first; first += ENTRIES, b.is_first = 0) {
        b.entries = (int)(entries - first < ENTRIES ? entries - first : ENTRIES);
        for (int k = 0; k < b.entries; k++) {
            b.gate[k] = gates_of(t, s, k, w, first + k, c, n);
            set_entry(t, s, &b, k, w, first + k, c);
        }
        t->o->pool(&b);
    }
}

/* One gate for all columns: the softmax of those that are not -inf, and then a weighted sum of their entries. */
static void pool_rows(const task *t, slot *s, int64_t w, int64_t c, int64_t n) {
    const int64_t entries = t->a->kv.shape[1];
    int64_t *places = (int64_t *)(void *)(s->gates + room_for_gates(entries)), kept = 0;
    for (int64_t p = 0; p < entries; p++) {
        float g = cbq_float_at(entry(&t->a->gate, w, p, 0), t->a->gate.dtype);
        if (g != -INFINITY) s->gates[kept] = g, places[kept++] = p;
    }
    t->o->softmax(s->gates, kept);
    cbq_pool_block b = {.state = &s->state, .n = n, .is_first = 1};
    for (int64_t first = 0; first < kept || b.is_first; first += ENTRIES, b.is_first = 0) {
        b.entries = (int)(kept - first < ENTRIES ? kept - first : ENTRIES);
        for (int k = 0; k < b.entries; k++) {
            b.weight[k] = s->gates[first + k];
            set_entry(t, s, &b, k, w, places[first + k], c);
        }
        t->o->pool_weighted(&b);
    }
}

/* Items are tiles of columns of windows. */
static void pool_range(void *context, int64_t begin, int64_t end) {
    task *t = context;
    const cbq_array *out = &t->a->out;
    slot *s = (slot *)(void *)cbq_scratch_take(&t->scratch);
    for (; begin < end; begin++) {
        const int64_t w = begin / t->tiles, c = begin % t->tiles * COLUMNS, n = out->shape[1] - c < COLUMNS ? out->shape[1] - c : COLUMNS;
        uint8_t *y = out->data + w * out->strides[0] + c * cbq_float_bytes(out->dtype);
        if (t->one_gate && !t->a->ape_on_gate) pool_rows(t, s, w, c, n);
        else pool_columns(t, s, w, c, n);
        t->o->pool_end(&s->state, s->result, n);
        t->o->narrow[out->dtype]((const uint8_t *)s->result, y, n);
    }
    cbq_scratch_give(&t->scratch, (uint8_t *)s);
}

static cbq_code check(const cbq_pool_args *a, cbq_status *st) {
    if (a->kv.ndim != 3) return cbq_fail(st, CBQ_BAD_VALUE, "kv: expected three dimensions, got %d", a->kv.ndim);
    const int64_t windows = a->kv.shape[0], entries = a->kv.shape[1], columns = a->kv.shape[2];
    const int64_t gates = a->gate.ndim == 3 && a->gate.shape[2] == 1 ? 1 : columns;
    if (CBQ_CHECK_SHAPE(&a->gate, "gate", st, windows, entries, gates) || CBQ_CHECK_SHAPE(&a->ape, "ape", st, entries, columns) ||
        CBQ_CHECK_SHAPE(&a->out, "out", st, windows, columns)) return st->code;
    if (cbq_check_dense(&a->gate, "gate", 2, st) || cbq_check_dense(&a->kv, "kv", 2, st) || cbq_check_dense(&a->ape, "ape", 1, st)) return st->code;
    return cbq_check_dense(&a->out, "out", 1, st);
}

/* The ape is wanted by every window, so it becomes float32 once. */
static float *widen_ape(task *t) {
    const cbq_array *ape = &t->a->ape;
    const int64_t entries = ape->shape[0], columns = ape->shape[1];
    float *wide = cbq_aligned_alloc(entries * columns * 4);
    for (int64_t p = 0; wide && p < entries; p++)
        t->o->widen[ape->dtype](ape->data + p * ape->strides[0], (uint8_t *)(wide + p * columns), columns);
    t->ape = (const uint8_t *)wide, t->ape_stride = columns * 4;
    return wide;
}

cbq_code cbq_pool(const cbq_pool_args *a, cbq_status *st) {
    if (check(a, st)) return st->code;
    const int64_t windows = a->kv.shape[0], entries = a->kv.shape[1], columns = a->kv.shape[2];
    task t = {.a = a, .o = a->how.level->operators, .one_gate = a->gate.shape[2] == 1, .tiles = (columns + COLUMNS - 1) / COLUMNS};
    float *wide = NULL;
    t.ape = a->ape.data, t.ape_stride = a->ape.strides[0];
    if (a->ape.dtype != CBQ_F32 && !(wide = widen_ape(&t))) return cbq_fail(st, CBQ_NO_MEMORY, "no memory for ape as float32");
    const int64_t grain = GRAIN / (entries * COLUMNS + 1) + 1, items = windows * t.tiles;
    const int threads = windows * entries * columns < ALONE ? 1 : cbq_resolve_threads(a->how.threads);
    if (cbq_scratch_open(&t.scratch, cbq_most_pieces(items, grain, threads), slot_bytes(entries), st) == CBQ_OK)
        cbq_parallel(items, grain, threads, pool_range, &t);
    cbq_scratch_close(&t.scratch);
    free(wide);
    return st->code;
}
