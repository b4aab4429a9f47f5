/* mhc_collapse and mhc_expand: weighted sums of planes [T, D], of which an array of streams [T, 4, D] has four. */
#include <stdlib.h>

#include "../check.h"
#include "../scratch.h"
#include "operators.h"
#include "rows.h"
#include "shapes.h"
#include "widen.h"

enum { STREAMS = CBQ_STREAMS, MAX_INS = CBQ_EXPANDED, MAX_WEIGHTS = STREAMS * MAX_INS };

/* Elements of one dtype, `t` and `d` bytes from a token, a column to the next. */
typedef struct {
    uint8_t *data;
    int64_t t, d;
    int dtype;
} plane;

typedef struct {
    const cbq_how *how;
    int64_t tokens, columns;
    int ins, outs;
    plane x[MAX_INS], y[STREAMS], weights[MAX_WEIGHTS]; /* those of an output side by side */
    cbq_mix_rows_fn *mix;
    const float *wide; /* all weights as float32, a row of all tokens each */
    cbq_scratch scratch;
} task;

static plane plane_of(const cbq_array *a, int64_t stream) {
    const int last = a->ndim - 1;
    const int64_t at = a->ndim == 3 ? stream * a->strides[1] : 0;
    /* the stride of an axis of one element may be anything */
    return (plane){a->data + at, a->strides[0], a->shape[last] == 1 ? cbq_float_bytes(a->dtype) : a->strides[last], a->dtype};
}
static plane weight_of(const cbq_array *a, int64_t i, int64_t j) {
    return (plane){a->data + i * a->strides[1] + (a->ndim == 3 ? j * a->strides[2] : 0), a->strides[0], 0, a->dtype};
}
static float weight_at(const plane *w, int64_t token) { return cbq_float_at(w->data + token * w->t, w->dtype); }

static int size_of(const plane *p) { return cbq_float_bytes(p->dtype); }

/* Are tokens (columns) neighbours in every plane? */
static int all_dense(const task *t, int along_tokens) {
    int dense = 1;
    for (int i = 0; i < t->ins; i++) dense &= (along_tokens ? t->x[i].t : t->x[i].d) == size_of(&t->x[i]);
    for (int i = 0; i < t->outs; i++) dense &= (along_tokens ? t->y[i].t : t->y[i].d) == size_of(&t->y[i]);
    return dense;
}
static int mix_of(const task *t) {
    const int first = t->x[0].dtype, rest = t->x[t->ins - 1].dtype, out = t->y[0].dtype;
    return first == rest && first == out ? first : CBQ_MIXED;
}
static cbq_mix_rows_fn *function(const task *t, int along, int mix) {
    const cbq_operators *o = t->how->level->operators;
    return t->outs == 1 ? o->collapse[along][mix] : o->expand[along][mix];
}

/* ---- rows along D, with one weight each, or along T, with a weight for each element ---- */

/* Nine streams are more than the processor's own prefetching follows. What to ask for is the same place of the next row, if the first-
   level cache holds a row of every input until then, else a few lines ahead. As parts of the speed of memory, on Zen 5 and one
   thread: bf16 rows of 8 KiB 0.91 (0.60 without), float32 rows of 16 KiB 0.90 (0.80 without; 0.81 with the next row). */
enum { HELD_ROWS = 40 << 10, FEW_LINES = 2048 };
static int64_t ahead(const task *t, const plane *p, int64_t n, int64_t next_row) {
    return t->ins * n * size_of(p) <= HELD_ROWS ? next_row : FEW_LINES;
}

static cbq_mix_rows rows_at(const task *t, int64_t token, int64_t column, int64_t n, uint8_t *const y[], int past) {
    cbq_mix_rows r = {.n = n, .first_dtype = t->x[0].dtype, .x_dtype = t->x[t->ins - 1].dtype, .y_dtype = t->y[0].dtype, .past = past};
    for (int i = 0; i < t->ins; i++) r.x[i] = t->x[i].data + token * t->x[i].t + column * t->x[i].d;
    for (int i = 0; i < t->outs; i++) r.y[i] = y[i];
    return r;
}
static void place_token(const void *args, int64_t token, uint8_t *y[]) {
    const task *t = args;
    for (int i = 0; i < t->outs; i++) y[i] = t->y[i].data + token * t->y[i].t;
}
static void fill_token(const void *args, int64_t token, int64_t at, int64_t n, uint8_t *const y[], int past) {
    const task *t = args;
    float w[MAX_WEIGHTS];
    cbq_mix_rows r = rows_at(t, token, at, n, y, past);
    for (int i = 0; i < t->ins * t->outs; i++) w[i] = weight_at(&t->weights[i], token);
    r.w = w, r.w_step = 1;
    r.first_ahead = ahead(t, &t->x[0], t->columns, t->x[0].t), r.x_ahead = ahead(t, &t->x[0], t->columns, t->x[t->ins - 1].t);
    t->mix(&r);
}
static void place_column(const void *args, int64_t column, uint8_t *y[]) {
    const task *t = args;
    for (int i = 0; i < t->outs; i++) y[i] = t->y[i].data + column * t->y[i].d;
}
static void fill_column(const void *args, int64_t column, int64_t at, int64_t n, uint8_t *const y[], int past) {
    const task *t = args;
    cbq_mix_rows r = rows_at(t, at, column, n, y, past);
    r.w = t->wide + at, r.w_step = t->tokens;
    r.first_ahead = ahead(t, &t->x[0], t->tokens, t->x[0].d), r.x_ahead = ahead(t, &t->x[0], t->tokens, t->x[t->ins - 1].d);
    t->mix(&r);
}

static cbq_code along_columns(task *t) {
    t->mix = function(t, 0, mix_of(t));
    cbq_row_job job = {t, t->tokens, t->columns, t->outs, size_of(&t->y[0]), place_token, fill_token};
    cbq_fill_rows(&job, CBQ_ROWS_ALONE / t->outs, CBQ_ROWS_GRAIN / t->outs, t->how);
    return CBQ_OK;
}

static cbq_code along_tokens(task *t, cbq_status *st) {
    const int weights = t->ins * t->outs;
    float *wide = cbq_aligned_alloc(weights * t->tokens * 4);
    if (!wide) return cbq_fail(st, CBQ_NO_MEMORY, "no memory for %d weights of %lld tokens", weights, (long long)t->tokens);
    for (int i = 0; i < weights; i++)
        for (int64_t token = 0; token < t->tokens; token++) wide[i * t->tokens + token] = weight_at(&t->weights[i], token);
    t->wide = wide, t->mix = function(t, 1, mix_of(t));
    cbq_row_job job = {t, t->columns, t->tokens, t->outs, size_of(&t->y[0]), place_column, fill_column};
    cbq_fill_rows(&job, CBQ_ROWS_ALONE / t->outs, CBQ_ROWS_GRAIN / t->outs, t->how);
    free(wide);
    return CBQ_OK;
}

/* ---- any strides: tiles are gathered as float32, and scattered again ---- */

enum { TILE_T = 16, TILE_D = 64 };
typedef struct { float x[MAX_INS][TILE_T][TILE_D], y[STREAMS][TILE_T][TILE_D]; } tiles;

/* The axis whose neighbours are nearer is the inner one. */
static void gather(const plane *p, int64_t token, int64_t column, int64_t tokens, int64_t columns, float to[TILE_T][TILE_D]) {
    const uint8_t *from = p->data + token * p->t + column * p->d;
    const int tokens_inside = llabs(p->t) < llabs(p->d);
    const int64_t outer = tokens_inside ? columns : tokens, inner = tokens_inside ? tokens : columns;
    for (int64_t i = 0; i < outer; i++)
        for (int64_t j = 0; j < inner; j++) {
            const int64_t a = tokens_inside ? j : i, b = tokens_inside ? i : j;
            to[a][b] = cbq_float_at(from + a * p->t + b * p->d, p->dtype);
        }
}
static void scatter(const task *t, const plane *p, int64_t token, int64_t column, int64_t tokens, int64_t columns, float from[TILE_T][TILE_D]) {
    const int size = size_of(p);
    uint8_t row[TILE_D * 4];
    for (int64_t i = 0; i < tokens; i++) {
        uint8_t *to = p->data + (token + i) * p->t + column * p->d;
        t->how->level->operators->narrow[p->dtype]((const uint8_t *)from[i], row, columns);
        for (int64_t j = 0; j < columns; j++) memcpy(to + j * p->d, row + j * size, (size_t)size);
    }
}
static void tile_range(void *context, int64_t begin, int64_t end) {
    task *t = context;
    const int64_t across = (t->columns + TILE_D - 1) / TILE_D;
    tiles *tile = (tiles *)(void *)cbq_scratch_take(&t->scratch);
    for (; begin < end; begin++) {
        const int64_t token = begin / across * TILE_T, column = begin % across * TILE_D;
        const int64_t tokens = t->tokens - token < TILE_T ? t->tokens - token : TILE_T;
        const int64_t columns = t->columns - column < TILE_D ? t->columns - column : TILE_D;
        for (int i = 0; i < t->ins; i++) gather(&t->x[i], token, column, tokens, columns, tile->x[i]);
        for (int64_t k = 0; k < tokens; k++) {
            float w[MAX_WEIGHTS];
            cbq_mix_rows r = {.n = columns, .w = w, .w_step = 1};
            for (int i = 0; i < t->ins * t->outs; i++) w[i] = weight_at(&t->weights[i], token + k);
            for (int i = 0; i < t->ins; i++) r.x[i] = (const uint8_t *)tile->x[i][k];
            for (int i = 0; i < t->outs; i++) r.y[i] = (uint8_t *)tile->y[i][k];
            t->mix(&r);
        }
        for (int i = 0; i < t->outs; i++) scatter(t, &t->y[i], token, column, tokens, columns, tile->y[i]);
    }
    cbq_scratch_give(&t->scratch, (uint8_t *)tile);
}
static cbq_code in_tiles(task *t, cbq_status *st) {
    const int64_t items = ((t->tokens + TILE_T - 1) / TILE_T) * ((t->columns + TILE_D - 1) / TILE_D), grain = 16;
    const int threads = t->tokens * t->columns * t->ins < CBQ_ROWS_ALONE / 4 ? 1 : cbq_resolve_threads(t->how->threads);
    t->mix = function(t, 0, CBQ_F32);
    if (cbq_scratch_open(&t->scratch, cbq_most_pieces(items, grain, threads), sizeof(tiles), st) == CBQ_OK)
        cbq_parallel(items, grain, threads, tile_range, t);
    cbq_scratch_close(&t->scratch);
    return st->code;
}

/* Rows of a few tokens are too short to go along them. */
enum { FEWEST_TOKENS = 32 };
static cbq_code run(task *t, cbq_status *st) {
    if (t->tokens * t->columns == 0) return CBQ_OK;
    if (all_dense(t, 0)) return along_columns(t);
    return t->tokens >= FEWEST_TOKENS && all_dense(t, 1) ? along_tokens(t, st) : in_tiles(t, st);
}

cbq_code cbq_collapse(const cbq_collapse_args *a, cbq_status *st) {
    if (a->h.ndim != 3) return cbq_fail(st, CBQ_BAD_VALUE, "h: expected three dimensions, got %d", a->h.ndim);
    const int64_t tokens = a->h.shape[0], columns = a->h.shape[2];
    if (CBQ_CHECK_SHAPE(&a->h, "h", st, tokens, STREAMS, columns) || CBQ_CHECK_SHAPE(&a->pre, "pre", st, tokens, STREAMS) ||
        CBQ_CHECK_SHAPE(&a->out, "out", st, tokens, columns)) return st->code;
    task t = {.how = &a->how, .tokens = tokens, .columns = columns, .ins = STREAMS, .outs = 1};
    for (int c = 0; c < STREAMS; c++) t.x[c] = plane_of(&a->h, c), t.weights[c] = weight_of(&a->pre, c, 0);
    t.y[0] = plane_of(&a->out, 0);
    return run(&t, st);
}

cbq_code cbq_expand(const cbq_expand_args *a, cbq_status *st) {
    if (a->residual.ndim != 3) return cbq_fail(st, CBQ_BAD_VALUE, "residual: expected three dimensions, got %d", a->residual.ndim);
    const int64_t tokens = a->residual.shape[0], columns = a->residual.shape[2];
    if (CBQ_CHECK_SHAPE(&a->block_out, "block_out", st, tokens, columns) || CBQ_CHECK_SHAPE(&a->post, "post", st, tokens, STREAMS) ||
        CBQ_CHECK_SHAPE(&a->comb, "comb", st, tokens, STREAMS, STREAMS) || CBQ_CHECK_SHAPE(&a->residual, "residual", st, tokens, STREAMS, columns) ||
        CBQ_CHECK_SHAPE(&a->out, "out", st, tokens, STREAMS, columns)) return st->code;
    task t = {.how = &a->how, .tokens = tokens, .columns = columns, .ins = MAX_INS, .outs = STREAMS};
    t.x[0] = plane_of(&a->block_out, 0);
    for (int dst = 0; dst < STREAMS; dst++) {
        plane *w = t.weights + dst * MAX_INS;
        t.x[1 + dst] = plane_of(&a->residual, dst), t.y[dst] = plane_of(&a->out, dst);
        w[0] = weight_of(&a->post, dst, 0);
        for (int src = 0; src < STREAMS; src++) w[1 + src] = a->src_first ? weight_of(&a->comb, src, dst) : weight_of(&a->comb, dst, src);
    }
    return run(&t, st);
}
