#include <stdlib.h>

#include "../check.h"
#include "../scratch.h"
#include "operators.h"
#include "shapes.h"
#include "widen.h"

/* A score costs some 2 ns, and to wake a thread as much as 10 000 of them. */
enum { ALONE = 1 << 15, GRAIN = 1 << 13 };

/* What scores and choices need: whole rows as float32. */
typedef struct {
    const cbq_operators *o;
    const cbq_array *logits;
    const float *bias;
    int scoring;
    cbq_scratch scratch;
    const cbq_router_args *router; /* one of the two */
    const cbq_route_args *route;
} task;

static int64_t row_floats(int64_t n) { return (n + 15) / 16 * 16; }

/* Scores of token t. Rows that are not float32 go through the scratch memory; the outputs are those of the caller where given. */
static void score_token(const task *t, int64_t token, float *slot, float *unbiased, float *biased) {
    const int64_t n = t->logits->shape[1];
    const float *logits = cbq_widen(t->o, t->logits->data + token * t->logits->strides[0], t->logits->dtype, n, slot);
    t->o->score(logits, t->bias, unbiased, biased, n, t->scoring);
}

static void router_range(void *context, int64_t begin, int64_t end) {
    task *t = context;
    const cbq_array *outs[] = {&t->router->unbiased, &t->router->biased};
    const int64_t n = t->logits->shape[1], floats = row_floats(n);
    float *slot = (float *)(void *)cbq_scratch_take(&t->scratch);
    for (int64_t token = begin; token < end; token++) {
        float *rows[2];
        for (int i = 0; i < 2; i++) {
            uint8_t *y = outs[i]->data + token * outs[i]->strides[0];
            rows[i] = outs[i]->dtype == CBQ_F32 ? (float *)(void *)y : slot + (1 + i) * floats;
        }
        score_token(t, token, slot, rows[0], rows[1]);
        for (int i = 0; i < 2; i++)
            if (outs[i]->dtype != CBQ_F32)
                t->o->narrow[outs[i]->dtype]((const uint8_t *)rows[i], outs[i]->data + token * outs[i]->strides[0], n);
    }
    cbq_scratch_give(&t->scratch, (uint8_t *)slot);
}

/* Scores of the chosen, over their sum where asked for (unless that is 0), times the scale. */
static void weigh(const cbq_route_args *a, float *weights) {
    float sum = 0;
    for (int64_t i = 0; i < a->k; i++) sum += weights[i];
    for (int64_t i = 0; i < a->k; i++) weights[i] = (a->normalize && sum != 0 ? weights[i] / sum : weights[i]) * a->scale;
}

static void route_range(void *context, int64_t begin, int64_t end) {
    task *t = context;
    const cbq_route_args *a = t->route;
    const int64_t n = t->logits->shape[1], floats = row_floats(n), k = a->k;
    float *slot = (float *)(void *)cbq_scratch_take(&t->scratch), *unbiased = slot + floats, *biased = slot + 2 * floats;
    float *weights = slot + 3 * floats;
    uint64_t *keys = (uint64_t *)(void *)(slot + 4 * floats);
    for (int64_t token = begin; token < end; token++) {
        int32_t *ids = (int32_t *)(void *)a->ids.data + token * k;
        score_token(t, token, slot, unbiased, biased);
        t->o->choose(biased, n, k, keys);
        for (int64_t i = 0; i < k; i++) {
            ids[i] = (int32_t)~(uint32_t)keys[i];
            weights[i] = unbiased[ids[i]];
        }
        weigh(a, weights);
        t->o->narrow[a->weights.dtype]((const uint8_t *)weights, a->weights.data + token * a->weights.strides[0], k);
    }
    cbq_scratch_give(&t->scratch, (uint8_t *)slot);
}

/* `slots` rows of scratch memory for each thread, and one for the bias. */
static cbq_code run(task *t, const cbq_array *bias, int64_t slots, const cbq_how *how, cbq_work_fn *work, cbq_status *st) {
    const int64_t tokens = t->logits->shape[0], n = t->logits->shape[1], floats = row_floats(n), grain = GRAIN / (n + 1) + 1;
    const int threads = tokens * n < ALONE ? 1 : cbq_resolve_threads(how->threads);
    float *wide = NULL;
    if (tokens * n == 0) return CBQ_OK;
    if (bias->dtype != CBQ_F32 && !(wide = cbq_aligned_alloc(4 * floats))) return cbq_fail(st, CBQ_NO_MEMORY, "no memory for the bias");
    t->bias = cbq_widen(t->o, bias->data, bias->dtype, n, wide);
    if (cbq_scratch_open(&t->scratch, cbq_most_pieces(tokens, grain, threads), slots * floats * 4, st) == CBQ_OK)
        cbq_parallel(tokens, grain, threads, work, t);
    cbq_scratch_close(&t->scratch);
    free(wide);
    return st->code;
}

static cbq_code check_inputs(const cbq_array *logits, const cbq_array *bias, cbq_status *st) {
    if (logits->ndim != 2) return cbq_fail(st, CBQ_BAD_VALUE, "logits: expected two dimensions, got %d", logits->ndim);
    if (logits->shape[1] > INT32_MAX) return cbq_fail(st, CBQ_BAD_VALUE, "logits: expected experts with 31-bit ids");
    if (cbq_check_dense(logits, "logits", 1, st) || CBQ_CHECK_SHAPE(bias, "bias", st, logits->shape[1])) return st->code;
    return cbq_check_dense(bias, "bias", 0, st);
}

cbq_code cbq_router(const cbq_router_args *a, cbq_status *st) {
    task t = {.o = a->how.level->operators, .logits = &a->logits, .scoring = a->scoring, .router = a};
    if (check_inputs(&a->logits, &a->bias, st)) return st->code;
    if (cbq_check_shape(&a->unbiased, "out[0]", 2, a->logits.shape, st) || cbq_check_shape(&a->biased, "out[1]", 2, a->logits.shape, st))
        return st->code;
    if (cbq_check_dense(&a->unbiased, "out[0]", 1, st) || cbq_check_dense(&a->biased, "out[1]", 1, st)) return st->code;
    return run(&t, &a->bias, 3, &a->how, router_range, st);
}

cbq_code cbq_route(const cbq_route_args *a, cbq_status *st) {
    task t = {.o = a->how.level->operators, .logits = &a->logits, .scoring = a->scoring, .route = a};
    if (check_inputs(&a->logits, &a->bias, st)) return st->code;
    const int64_t tokens = a->logits.shape[0], n = a->logits.shape[1];
    if (a->k < 1 || a->k > n) return cbq_fail(st, CBQ_BAD_VALUE, "k: expected 1 to %lld, got %lld", (long long)n, (long long)a->k);
    if (CBQ_CHECK_SHAPE(&a->weights, "out[1]", st, tokens, a->k) || cbq_check_dense(&a->weights, "out[1]", 1, st)) return st->code;
    if (cbq_check_rows("out[0]", a->ids.bytes, tokens, a->k * 4, st)) return st->code;
    return run(&t, &a->bias, 6, &a->how, route_range, st);
}
