#include "../check.h"
#include "operators.h"
#include "shapes.h"
#include "widen.h"

/* A round of a token costs some 2 ns, exps and sigmoids as much as some rounds. */
enum { ALONE = 1 << 14, GRAIN = 1 << 12, ROUNDS_BESIDES = 6 };

enum { TOKENS = CBQ_TOKENS, SIDE = CBQ_STREAMS, OUTS = 3 };

typedef struct {
    const cbq_sinkhorn_args *a;
    cbq_sinkhorn numbers;
} task;

/* Four numbers of a token at a time: the rows of the three outputs. */
static void store(const task *t, const float *split, int64_t first, int n) {
    const cbq_operators *o = t->a->how.level->operators;
    const cbq_array *outs[OUTS] = {&t->a->pre, &t->a->post, &t->a->comb};
    uint8_t bytes[TOKENS * CBQ_SPLIT * 4];
    for (int i = 0; i < OUTS; i++) {
        const cbq_array *out = outs[i];
        const int size = cbq_float_bytes(out->dtype), rows = out->ndim == 3 ? SIDE : 1;
        o->narrow[out->dtype]((const uint8_t *)split, bytes, TOKENS * CBQ_SPLIT);
        for (int token = 0; token < n; token++)
            for (int row = 0; row < rows; row++)
                memcpy(out->data + (first + token) * out->strides[0] + (rows > 1 ? row * out->strides[1] : 0),
                       bytes + (token * CBQ_SPLIT + (i + row) * SIDE) * size, (size_t)(SIDE * size));
    }
}

/* Items are groups of tokens. */
static void split_range(void *context, int64_t begin, int64_t end) {
    const task *t = context;
    const cbq_array *mix = &t->a->mix;
    const cbq_operators *o = t->a->how.level->operators;
    for (; begin < end; begin++) {
        const int64_t first = begin * TOKENS, left = mix->shape[0] - first;
        const int n = (int)(left < TOKENS ? left : TOKENS);
        float rows[TOKENS * CBQ_MIX] = {0}, split[TOKENS * CBQ_SPLIT];
        for (int i = 0; i < n; i++) {
            const uint8_t *row = mix->data + (first + i) * mix->strides[0];
            memcpy(rows + i * CBQ_MIX, cbq_widen(o, row, mix->dtype, CBQ_MIX, rows + i * CBQ_MIX), CBQ_MIX * 4);
        }
        o->sinkhorn(&t->numbers, rows, split);
        store(t, split, first, n);
    }
}

static void read_numbers(const cbq_array *a, int64_t n, float *to) {
    for (int64_t i = 0; i < n; i++) to[i] = cbq_float_at(a->data + i * a->strides[0], a->dtype);
}

cbq_code cbq_sinkhorn_split(const cbq_sinkhorn_args *a, cbq_status *st) {
    if (a->mix.ndim != 2) return cbq_fail(st, CBQ_BAD_VALUE, "mix: expected two dimensions, got %d", a->mix.ndim);
    const int64_t tokens = a->mix.shape[0];
    if (CBQ_CHECK_SHAPE(&a->mix, "mix", st, tokens, CBQ_MIX) || CBQ_CHECK_SHAPE(&a->scale, "scale", st, 3) ||
        CBQ_CHECK_SHAPE(&a->base, "base", st, CBQ_MIX) || CBQ_CHECK_SHAPE(&a->pre, "out[0]", st, tokens, SIDE) ||
        CBQ_CHECK_SHAPE(&a->post, "out[1]", st, tokens, SIDE) || CBQ_CHECK_SHAPE(&a->comb, "out[2]", st, tokens, SIDE, SIDE)) return st->code;
    if (cbq_check_dense(&a->mix, "mix", 1, st) || cbq_check_dense(&a->pre, "out[0]", 1, st) || cbq_check_dense(&a->post, "out[1]", 1, st) ||
        cbq_check_dense(&a->comb, "out[2]", 2, st)) return st->code;
    if (a->iters < 1) return cbq_fail(st, CBQ_BAD_VALUE, "iters: expected 1 and up, got %d", a->iters);
    task t = {a, {.eps = (float)a->eps, .iters = a->iters, .ends_with_columns = a->ends_with_columns, .src_first = a->src_first}};
    read_numbers(&a->scale, 3, t.numbers.scale);
    read_numbers(&a->base, CBQ_MIX, t.numbers.base);
    const int64_t rounds = (int64_t)a->iters + ROUNDS_BESIDES, groups = (tokens + TOKENS - 1) / TOKENS;
    const int threads = tokens * rounds < ALONE ? 1 : cbq_resolve_threads(a->how.threads);
    cbq_parallel(groups, GRAIN / (TOKENS * rounds) + 1, threads, split_range, &t);
    return CBQ_OK;
}
