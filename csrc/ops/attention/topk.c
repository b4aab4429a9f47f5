#include "../check.h"
#include "arrays.h"
#include "choose.h"
#include "indexer.h"

/* Scores below which one thread chooses, and those that a part of a row has at least: to wake a thread takes as long as to look at some
   500 000. */
enum { ALONE = 1 << 19, PART = 1 << 18 };

typedef struct {
    const cbq_topk_args *a;
    cbq_to_float_fn *to_float;
    int64_t bytes; /* of a score */
    int in_place;  /* float32, and aligned */
} source;

static const float *scores(const void *context, int64_t row, int64_t begin, int64_t n, uint8_t *room) {
    const source *s = context;
    const uint8_t *from = s->a->score.data + row * s->a->score.strides[0] + begin * s->bytes;
    if (s->in_place) return (const float *)(const void *)from;
    if (s->to_float) s->to_float(from, room, n);
    else memcpy(room, from, (size_t)(4 * n));
    return (const float *)(const void *)room;
}

static int parts_of(int64_t rows, int64_t n, int threads) {
    const int64_t most = n / PART;
    if (rows >= threads || n < ALONE) return 1;
    return most < threads ? (int)most : threads;
}

cbq_code cbq_indexer_topk(const cbq_topk_args *a, cbq_status *st) {
    const cbq_array *score = &a->score;
    if (score->ndim != 2) return cbq_fail(st, CBQ_BAD_VALUE, "score: expected 2 dimensions, got %d", score->ndim);
    const int64_t rows = score->shape[0], n = score->shape[1];
    if (!cbq_is_dense(score, 1)) return cbq_fail(st, CBQ_BAD_VALUE, "score: expected a contiguous last axis");
    if (n > INT32_MAX) return cbq_fail(st, CBQ_BAD_VALUE, "score: expected at most 2147483647 scores in a row, got %lld", (long long)n);
    if (a->lengths.data && cbq_check_lengths(a->lengths, rows, n, st)) return st->code;
    if (a->k < 0 || (a->k > n && !a->lengths.data))
        return cbq_fail(st, CBQ_BAD_VALUE, "k: expected 0 to %lld (scores in a row), got %lld", (long long)n, (long long)a->k);
    if (cbq_check_rows("out", a->out.bytes, rows, 4 * a->k, st)) return st->code;
    if (a->k == 0 || rows == 0) return CBQ_OK;
    const int threads = (double)rows * (double)n < ALONE ? 1 : cbq_resolve_threads(a->threads);
    const int f32 = score->dtype == CBQ_F32;
    source s = {.a = a, .bytes = cbq_float_bytes(score->dtype), .in_place = f32 && ((uintptr_t)score->data | (uintptr_t)score->strides[0]) % 4 == 0};
    if (!f32) s.to_float = a->level->kernels->to_float[cbq_find_format(score->dtype == CBQ_F16 ? "f16" : "bf16")][CBQ_F32];
    const cbq_choice choice = {.level = a->level, .rows = rows, .n = n, .k = a->k,
                               .lengths = (const int64_t *)(const void *)a->lengths.data, .parts = parts_of(rows, n, threads),
                               .room_bytes = 4 * CBQ_TOP_PIECE, .context = &s, .scores = scores, .in_memory = s.in_place,
                               .out = (int32_t *)(void *)a->out.data};
    return cbq_choose(&choice, threads, st);
}
