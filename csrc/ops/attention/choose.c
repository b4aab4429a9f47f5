#include "choose.h"

#include <stdlib.h>

#include "../scratch.h"

/* A sample of a row says about where the k-th largest is. Where all scores are in memory, and there are many more than k, only those
   above a limit that leaves more than k by far are looked at. A wrong guess leaves fewer, and the choice is made without. */
enum { SAMPLE_FROM = 1 << 13, SAMPLE_RUN = 16, MOST_RUNS = 512, LEAST_RUNS = 128, OFTEN = 16 };

typedef struct {
    const cbq_choice *c;
    cbq_scratch scratch;
    int64_t part, kept; /* scores of a part, and how many of them are kept at most */
    int64_t *counts;    /* of candidates of each part of each row; then come these */
    int32_t *index, *order;
} task;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t length_of(const cbq_choice *c, int64_t row) { return c->lengths ? c->lengths[row] : c->n; }
static int64_t top_bytes(int64_t k, int64_t n) { return (cbq_top_bytes(k, n) + 63) / 64 * 64; }

/* k of n: the share of them in the sample, and four of its standard deviations more. */
static int64_t rank_in_sample(int64_t k, int64_t n, int64_t sample) {
    double expected = (double)k * (double)sample / (double)n, root = 1;
    while (root * root < expected) root += 1;
    return (int64_t)(expected * 1.25 + 4 * root + 2);
}

static int guess(const cbq_choice *c, int64_t row, int64_t begin, int64_t n, int64_t k, uint8_t *room, float *limit) {
    int64_t runs = n / (2 * SAMPLE_RUN * SAMPLE_RUN), larger;
    int32_t sample[MOST_RUNS * SAMPLE_RUN];
    if (!c->in_memory || n < SAMPLE_FROM || n / OFTEN < k) return 0;
    runs = runs < LEAST_RUNS ? LEAST_RUNS : runs > MOST_RUNS ? MOST_RUNS : runs;
    const int64_t size = runs * SAMPLE_RUN, rank = rank_in_sample(k, n, size);
    if (n / runs < SAMPLE_RUN || rank > size / 4) return 0;
    const float *s = c->scores(c->context, row, begin, n, room);
    for (int64_t i = 0; i < runs; i++) memcpy(sample + i * SAMPLE_RUN, s + i * (n / runs), SAMPLE_RUN * sizeof *sample);
    c->level->attention->scores_to_order(sample, size);
    *limit = cbq_score_of(cbq_order_limit(c->level->attention, sample, size, rank, &larger));
    return *limit == *limit;
}

static void feed(const cbq_choice *c, cbq_top *top, int64_t row, int64_t begin, int64_t n, uint8_t *room) {
    for (int64_t at = 0; at < n; at += CBQ_TOP_PIECE) {
        int64_t count = n - at < CBQ_TOP_PIECE ? n - at : CBQ_TOP_PIECE;
        cbq_top_feed(top, c->scores(c->context, row, begin + at, count, room), count, (int32_t)(begin + at));
    }
}

static void choose_part(const task *t, int64_t row, int64_t begin, int64_t n, int64_t k, uint8_t *memory, cbq_top *top) {
    const cbq_choice *c = t->c;
    uint8_t *room = memory + top_bytes(k, n);
    float limit;
    if (guess(c, row, begin, n, k, room, &limit)) {
        cbq_top_open(top, c->level->attention, k, n, memory);
        cbq_top_guess(top, limit);
        feed(c, top, row, begin, n, room);
        if (top->count >= k) return;
    }
    cbq_top_open(top, c->level->attention, k, n, memory);
    feed(c, top, row, begin, n, room);
}

static void finish_row(const cbq_choice *c, int64_t row, cbq_top *top) {
    int32_t *to = c->out + row * c->k;
    cbq_top_finish(top, to);
    for (int64_t i = top->k; i < c->k; i++) to[i] = -1;
}

static void whole_rows(void *context, int64_t begin, int64_t end) {
    task *t = context;
    const cbq_choice *c = t->c;
    uint8_t *memory = cbq_scratch_take(&t->scratch);
    for (int64_t row = begin; row < end; row++) {
        const int64_t n = length_of(c, row);
        cbq_top top;
        choose_part(t, row, 0, n, smaller(n, c->k), memory, &top);
        finish_row(c, row, &top);
    }
    cbq_scratch_give(&t->scratch, memory);
}

static void parts_of_rows(void *context, int64_t begin, int64_t end) {
    task *t = context;
    uint8_t *memory = cbq_scratch_take(&t->scratch);
    for (int64_t item = begin; item < end; item++) {
        const int64_t row = item / t->c->parts, first = item % t->c->parts * t->part;
        const int64_t n = smaller(length_of(t->c, row) - first, t->part);
        cbq_top top;
        t->counts[item] = 0;
        if (n <= 0) continue;
        choose_part(t, row, first, n, smaller(n, t->kept), memory, &top);
        cbq_top_shrink(&top);
        t->counts[item] = top.count;
        memcpy(t->index + item * t->kept, top.index, (size_t)top.count * 4);
        memcpy(t->order + item * t->kept, top.order, (size_t)top.count * 4);
    }
    cbq_scratch_give(&t->scratch, memory);
}
static void join_rows(void *context, int64_t begin, int64_t end) {
    task *t = context;
    const cbq_choice *c = t->c;
    uint8_t *memory = cbq_scratch_take(&t->scratch);
    for (int64_t row = begin; row < end; row++) {
        const int64_t n = length_of(c, row);
        cbq_top top;
        cbq_top_open(&top, c->level->attention, smaller(n, c->k), n, memory);
        for (int64_t item = row * c->parts; item < (row + 1) * c->parts; item++)
            cbq_top_join(&top, t->index + item * t->kept, t->order + item * t->kept, t->counts[item]);
        finish_row(c, row, &top);
    }
    cbq_scratch_give(&t->scratch, memory);
}

static cbq_code choose_in_parts(task *t, int threads, cbq_status *st) {
    const int64_t items = t->c->rows * t->c->parts, bytes = t->kept * 8 + 8;
    uint8_t *memory = items > PTRDIFF_MAX / bytes ? NULL : cbq_aligned_alloc(items * bytes);
    if (!memory) return cbq_fail(st, CBQ_NO_MEMORY, "no memory for %lld times %lld candidates", (long long)items, (long long)t->kept);
    t->counts = (int64_t *)(void *)memory;
    t->index = (int32_t *)(void *)(memory + items * 8);
    t->order = t->index + items * t->kept;
    cbq_parallel(items, 1, threads, parts_of_rows, t);
    cbq_parallel(t->c->rows, 1, threads, join_rows, t);
    free(memory);
    return CBQ_OK;
}

cbq_code cbq_choose(const cbq_choice *c, int threads, cbq_status *st) {
    task t = {.c = c, .part = (c->n + c->parts - 1) / c->parts};
    t.kept = smaller(c->k, t.part);
    const int slots = cbq_most_pieces(c->rows * c->parts, 1, threads);
    if (cbq_scratch_open(&t.scratch, slots, top_bytes(smaller(c->k, c->n), c->n) + c->room_bytes, st) == CBQ_OK) {
        if (c->parts == 1) cbq_parallel(c->rows, 1, threads, whole_rows, &t);
        else choose_in_parts(&t, threads, st);
    }
    cbq_scratch_close(&t.scratch);
    return st->code;
}
