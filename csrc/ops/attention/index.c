#include "../check.h"
#include "../product.h"
#include "../scratch.h"
#include "arrays.h"
#include "choose.h"
#include "indexer.h"

#include <stdlib.h>

/* Rows of the cache that are scored at a time by a thread, and multiply-adds below which one thread does it all. */
enum { PIECE = 512, ALONE = 1 << 20 };
/* A thread gets so many parts of a row to choose from, and a part has at least so many positions. */
enum { PARTS_OF_A_THREAD = 4, LEAST_PART = 4096 };

typedef struct {
    const cbq_index_inputs *in;
    cbq_array out;   /* of the scores */
    cbq_scratch scratch;
    float *q, *w;    /* [B, H, depth], [B, H] */
    int64_t batch, heads, n, depth;
} task;

static cbq_code check(const cbq_index_inputs *in, cbq_status *st) {
    if (in->q.ndim != 3 || (in->k.ndim != 2 && in->k.ndim != 3))
        return cbq_fail(st, CBQ_BAD_VALUE, "q, k: expected 3 and 2 or 3 dimensions, got %d and %d", in->q.ndim, in->k.ndim);
    const int64_t batch = in->q.shape[0], heads = in->q.shape[1], width = in->q.shape[2], n = in->k.shape[0];
    if (cbq_check_array(&in->q, "q", 3, in->q.shape, st)) return st->code;
    if (in->k.ndim == 2 && cbq_check_array(&in->k, "k", 2, (const int64_t[]){n, width}, st)) return st->code;
    if (in->k.ndim == 3 && cbq_check_array(&in->k, "k", 3, (const int64_t[]){n, heads, width}, st)) return st->code;
    return cbq_check_array(&in->w, "w", 2, (const int64_t[]){batch, heads}, st);
}

/* Queries and weights as float32, padded. */
static cbq_code prepare(task *t, cbq_status *st) {
    const cbq_index_inputs *in = t->in;
    const double floats = (double)t->batch * (double)t->heads * (double)(t->depth + 1);
    t->q = floats > (double)(INT64_C(1) << 50) ? NULL : cbq_aligned_alloc(t->batch * t->heads * (t->depth + 1) * 4);
    if (!t->q) return cbq_fail(st, CBQ_NO_MEMORY, "no memory for %.0f numbers of queries", floats);
    t->w = t->q + t->batch * t->heads * t->depth;
    memset(t->q, 0, (size_t)(t->batch * t->heads * t->depth) * 4);
    for (int64_t b = 0; b < t->batch; b++) {
        for (int64_t h = 0; h < t->heads; h++) cbq_row_to_floats(&in->q, b, h, in->level, 1, t->q + (b * t->heads + h) * t->depth);
        cbq_row_to_floats(&in->w, b, 0, in->level, 1, t->w + b * t->heads);
    }
    return CBQ_OK;
}
static cbq_code open(task *t, const cbq_index_inputs *in, cbq_status *st) {
    *t = (task){.in = in};
    if (check(in, st)) return st->code;
    t->batch = in->q.shape[0], t->heads = in->q.shape[1], t->n = in->k.shape[0], t->depth = cbq_padded_width(in->q.shape[2]);
    return prepare(t, st);
}
static void score(const task *t, int64_t b, int64_t begin, int64_t end, float *scores, uint8_t *scratch) {
    const cbq_array *k = &t->in->k;
    const cbq_index_args a = {.q = t->q + b * t->heads * t->depth, .w = t->w + b * t->heads, .q_stride = t->depth, .heads = t->heads,
                              .k = {k->data, k->strides[0], k->shape[k->ndim - 1], k->dtype}, .of_head = k->ndim == 3 ? k->strides[1] : 0,
                              .begin = begin, .end = end, .scores = scores, .scratch = (float *)(void *)scratch};
    t->in->level->attention->index_scores(&a);
}
static int threads_for(const task *t) {
    return (double)t->batch * (double)t->heads * (double)t->n * (double)t->depth < ALONE ? 1 : cbq_resolve_threads(t->in->threads);
}
static int64_t scratch_bytes(const task *t) { return 4 * cbq_index_floats(t->in->q.shape[2]); }

/* ---- scores ---- */

/* A piece of the cache for all of the batch, which finds it in cache. */
static void score_range(void *context, int64_t begin, int64_t end) {
    task *t = context;
    uint8_t *scratch = cbq_scratch_take(&t->scratch);
    for (int64_t item = begin; item < end; item++) {
        const int64_t b = item % t->batch, first = item / t->batch * PIECE, last = t->n - first < PIECE ? t->n : first + PIECE;
        float scores[PIECE];
        score(t, b, first, last, scores, scratch);
        memcpy(t->out.data + b * t->out.strides[0] + 4 * first, scores, (size_t)(last - first) * 4);
    }
    cbq_scratch_give(&t->scratch, scratch);
}

cbq_code cbq_indexer_score(const cbq_index_inputs *in, const cbq_array *out, cbq_status *st) {
    task t;
    if (open(&t, in, st)) return st->code;
    t.out = *out;
    const int64_t items = (t.n + PIECE - 1) / PIECE * t.batch;
    const int threads = threads_for(&t);
    if (out->dtype != CBQ_F32) cbq_fail(st, CBQ_BAD_TYPE, "out: expected float32");
    else if (cbq_check_array(out, "out", 2, (const int64_t[]){t.batch, t.n}, st) == CBQ_OK) {
        if (cbq_scratch_open(&t.scratch, cbq_most_pieces(items, 1, threads), scratch_bytes(&t), st) == CBQ_OK)
            cbq_parallel(items, 1, threads, score_range, &t);
        cbq_scratch_close(&t.scratch);
    }
    free(t.q);
    return st->code;
}

/* ---- the largest ones, without an array of them ---- */

static const float *scores_of(const void *context, int64_t row, int64_t begin, int64_t n, uint8_t *room) {
    score(context, row, begin, begin + n, (float *)(void *)room, room + 4 * CBQ_TOP_PIECE);
    return (const float *)(const void *)room;
}

static int parts_of(const task *t, int threads) {
    const int64_t wanted = ((int64_t)threads * PARTS_OF_A_THREAD + t->batch - 1) / t->batch, most = t->n / LEAST_PART;
    if (threads == 1 || most <= 1) return 1;
    return (int)(wanted < most ? wanted : most);
}

static cbq_code check_choice(const task *t, int64_t k, const cbq_out *out, cbq_status *st) {
    const cbq_view lengths = t->in->lengths;
    if (t->n > INT32_MAX) return cbq_fail(st, CBQ_BAD_VALUE, "k: expected at most 2147483647 positions, got %lld", (long long)t->n);
    if (lengths.data && cbq_check_lengths(lengths, t->batch, t->n, st)) return st->code;
    if (k < 0 || (k > t->n && !lengths.data))
        return cbq_fail(st, CBQ_BAD_VALUE, "topk: expected 0 to %lld, got %lld", (long long)t->n, (long long)k);
    return cbq_check_rows("out", out->bytes, t->batch, 4 * k, st);
}

cbq_code cbq_indexer_select(const cbq_index_inputs *in, int64_t k, const cbq_out *out, cbq_status *st) {
    task t;
    if (open(&t, in, st)) return st->code;
    const int threads = threads_for(&t);
    cbq_choice choice = {.level = in->level, .rows = t.batch, .n = t.n, .k = k, .lengths = (const int64_t *)(const void *)in->lengths.data,
                         .room_bytes = 4 * CBQ_TOP_PIECE + scratch_bytes(&t),
                         .context = &t, .scores = scores_of, .out = (int32_t *)(void *)out->data};
    if (check_choice(&t, k, out, st) == CBQ_OK && k > 0 && t.batch > 0) {
        choice.parts = parts_of(&t, threads);
        cbq_choose(&choice, threads, st);
    }
    free(t.q);
    return st->code;
}
