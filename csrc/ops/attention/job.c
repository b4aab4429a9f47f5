#include "job.h"

#include <math.h>
#include <stdlib.h>

#include "../check.h"
#include "../product.h"
#include "../scratch.h"

/* A sequence is cut into at most CBQ_MAX_PIECES pieces of at least LEAST_PIECE rows, in a way that depends on its own rows alone: so a
   result depends neither on threads nor on the batch. Sequences are taken in rounds whose partial results have ROUND_BYTES. */
enum { LEAST_PIECE = 512, ROUND_BYTES = 64 << 20 };

/* Multiply-adds below which one thread does it all. */
enum { ALONE = 1 << 20 };

typedef struct {
    const cbq_attention_job *j;
    cbq_scratch scratch;
    int64_t group, o_stride;     /* heads of a group; floats of a head's partial values */
    int64_t first, last;         /* sequences of the round */
    int64_t *pieces;             /* of all sequences before this one in the round */
    float *largest, *total, *o;  /* [pieces, heads], and rows of o_stride */
} task;

static int64_t piece_rows(int64_t rows) {
    const int64_t least = cbq_rounded_up((rows + CBQ_MAX_PIECES - 1) / CBQ_MAX_PIECES, CBQ_STEP);
    return least < LEAST_PIECE ? LEAST_PIECE : least;
}
static int64_t piece_count(int64_t rows) { return rows ? (rows - 1) / piece_rows(rows) + 1 : 0; }

static cbq_rows rows_of(const cbq_cache *cache, int64_t b, int64_t g) {
    cbq_rows rows = cache->rows;
    rows.data += b * cache->of_sequence + g * cache->of_group;
    return rows;
}

/* The sequence that piece number `p` of the round belongs to. */
static int64_t sequence_of(const task *t, int64_t p) {
    int64_t low = t->first, high = t->last - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (t->pieces[middle - t->first] <= p) low = middle;
        else high = middle - 1;
    }
    return low;
}

static void attend_range(void *context, int64_t begin, int64_t end) {
    task *t = context;
    const cbq_attention_job *j = t->j;
    uint8_t *scratch = cbq_scratch_take(&t->scratch);
    for (int64_t item = begin; item < end; item++) {
        const int64_t piece = item / j->groups, g = item % j->groups, b = sequence_of(t, piece), head = g * t->group;
        const int64_t rows = piece_rows(j->counts[b]), from = (piece - t->pieces[b - t->first]) * rows, place = piece * j->heads + head;
        cbq_attend_args a = {.q = j->q + (b * j->heads + head) * j->depth, .q_stride = j->depth, .heads = t->group, .parts = j->parts,
                             .v = rows_of(&j->v, b, g), .list = j->lists ? j->lists[b] : NULL, .begin = from,
                             .end = j->counts[b] - from < rows ? j->counts[b] : from + rows, .largest = t->largest + place,
                             .total = t->total + place, .o = t->o + place * t->o_stride, .o_stride = t->o_stride,
                             .scratch = (float *)(void *)scratch};
        for (int part = 0; part < j->parts; part++) a.k[part] = rows_of(&j->k[part], b, g);
        j->level->attention->attend(&a);
    }
    cbq_scratch_give(&t->scratch, scratch);
}

static void merge_range(void *context, int64_t begin, int64_t end) {
    const task *t = context;
    const cbq_attention_job *j = t->j;
    for (int64_t item = begin; item < end; item++) {
        const int64_t b = t->first + item / j->heads, h = item % j->heads, first = t->pieces[b - t->first];
        const int64_t place = first * j->heads + h;
        cbq_merge_args a = {.pieces = t->pieces[b - t->first + 1] - first, .step = j->heads, .o_step = j->heads * t->o_stride,
                            .width = j->v.rows.width, .largest = t->largest + place, .total = t->total + place,
                            .o = t->o + place * t->o_stride, .sink = j->sink ? j->sink[h] : -INFINITY,
                            .out = j->out.data + b * j->out.strides[0] + h * j->out.strides[1], .dtype = j->out.dtype};
        j->level->attention->merge(&a);
    }
}

/* Sequences from `first` on whose partial results go together. */
static void begin_round(task *t, int64_t first) {
    const cbq_attention_job *j = t->j;
    const int64_t most = ROUND_BYTES / (j->heads * (t->o_stride + 2) * 4);
    t->first = t->last = first;
    t->pieces[0] = 0;
    do {
        t->pieces[t->last + 1 - first] = t->pieces[t->last - first] + piece_count(j->counts[t->last]);
        t->last++;
    } while (t->last < j->batch && t->pieces[t->last - first] + piece_count(j->counts[t->last]) <= most);
}
static int64_t pieces_of_round(const task *t) { return t->pieces[t->last - t->first]; }

/* Floats for the partial results of so many pieces. */
static int64_t partial_floats(const task *t, int64_t pieces) { return pieces * t->j->heads * (t->o_stride + 2); }

static void run_round(task *t, float *partial, int threads) {
    const int64_t pieces = pieces_of_round(t), places = pieces * t->j->heads;
    t->o = partial, t->largest = t->o + places * t->o_stride, t->total = t->largest + places;
    cbq_parallel(pieces * t->j->groups, 1, threads, attend_range, t);
    cbq_parallel((t->last - t->first) * t->j->heads, 8, threads, merge_range, t);
}

static int threads_for(const cbq_attention_job *j) {
    double work = 0;
    for (int64_t b = 0; b < j->batch; b++) work += (double)j->counts[b];
    work *= (double)j->heads * (double)(j->depth + j->v.rows.width);
    return work < ALONE ? 1 : cbq_resolve_threads(j->threads);
}

static cbq_code run_rounds(task *t, int threads, cbq_status *st) {
    int64_t most = 1, items = 1;
    for (int64_t b = 0; b < t->j->batch; b = t->last) {
        begin_round(t, b);
        most = pieces_of_round(t) > most ? pieces_of_round(t) : most;
    }
    items = most * t->j->groups;
    const int64_t floats = cbq_attend_floats(t->group, t->j->depth, t->j->v.rows.width);
    float *partial = cbq_aligned_alloc(4 * partial_floats(t, most));
    if (!partial) cbq_fail(st, CBQ_NO_MEMORY, "no memory for partial results of %lld pieces", (long long)most);
    if (cbq_scratch_open(&t->scratch, cbq_most_pieces(items, 1, threads), 4 * floats, st) == CBQ_OK && partial)
        for (int64_t b = 0; b < t->j->batch; b = t->last) {
            begin_round(t, b);
            run_round(t, partial, threads);
        }
    cbq_scratch_close(&t->scratch);
    free(partial);
    return st->code;
}

cbq_code cbq_run_attention(const cbq_attention_job *j, cbq_status *st) {
    task t = {.j = j, .o_stride = cbq_padded_o(j->v.rows.width)};
    if (j->batch == 0 || j->heads == 0 || j->v.rows.width == 0) return CBQ_OK;
    t.group = j->heads / j->groups;
    t.pieces = cbq_aligned_alloc((j->batch + 1) * 8);
    if (!t.pieces) return cbq_fail(st, CBQ_NO_MEMORY, "no memory for %lld sequences", (long long)j->batch);
    run_rounds(&t, threads_for(j), st);
    free(t.pieces);
    return st->code;
}
