/* Attention of some heads over a piece of their cache: logits, their maximum, the sum of exponentials and the weighted values, in steps
   of CBQ_STEP rows. What comes out is a partial result, to be joined with those of other pieces by `merge`. */
#pragma once
#include "few.h"
#include "panel.h"
#include "softmax.h"

enum { ASK_BYTES = 6144 }; /* from what is read to what is asked for */

typedef struct {
    const cbq_attend_args *a;
    int few;                  /* rows are read where they lie */
    int same;                 /* values are the first part of the keys */
    int64_t depth;            /* columns of queries and of the keys panel */
    float *scores, *rescale, *keys, *values;
    /* Rows in the order in which they are read: keys of the step, its values where they are others, keys of the next step. */
    const uint8_t *rows[3 * CBQ_STEP];
    rows_ahead after_keys, after_values; /* what to ask for while those are read */
} attending;

/* Rows i .. i + n - 1 of the piece, then the last of them again. */
CBQ_FN void find_rows(const attending *t, const cbq_rows *of, int64_t i, int64_t n, const uint8_t **rows) {
    const int64_t *list = t->a->list;
    for (int64_t j = 0; j < n; j++) rows[j] = of->data + (list ? list[i + j] : i + j) * of->stride;
    for (int64_t j = n; j < CBQ_STEP; j++) rows[j] = rows[n - 1];
}
CBQ_FN int64_t rows_of_step(const attending *t, int64_t i) { return t->a->end - i < CBQ_STEP ? t->a->end - i : CBQ_STEP; }

/* Keys of all parts to their panel, the first part last: where the values are that part, their panel is left behind. */
CBQ_FN void make_keys(attending *t, int64_t i, int64_t n) {
    const int64_t whole = (n + TILE_W - 1) / TILE_W * TILE_W;
    int64_t first = t->depth;
    for (int part = t->a->parts - 1; part >= 0; part--) {
        const cbq_rows *k = &t->a->k[part];
        const uint8_t *rows[CBQ_STEP];
        first -= cbq_padded_width(k->width);
        if (part) find_rows(t, k, i, n, rows);
        rows_to_values(part ? rows : t->rows, whole, k, part ? (rows_ahead){0} : t->after_keys, t->values);
        values_to_keys(t->values, whole, k->width, t->keys, t->depth, first);
    }
}
CBQ_FN int values_are_keys(const cbq_attend_args *a) {
    return a->v.data == a->k[0].data && a->v.stride == a->k[0].stride && a->v.width == a->k[0].width && a->v.dtype == a->k[0].dtype;
}

/* Rows of values, and of the next keys after them. */
CBQ_FN const uint8_t **values_rows(attending *t) { return t->rows + (t->same ? 0 : CBQ_STEP); }

CBQ_FN void add_values(attending *t, int64_t h, int64_t heads, int64_t begin, int64_t end, const float *rescale) {
    const cbq_attend_args *a = t->a;
    const float *weights = t->scores + h * CBQ_STEP + begin;
    float *o = a->o + h * a->o_stride;
    if (t->few) few_values(weights, rescale, heads, values_rows(t) + begin, end - begin, &a->v, t->after_values, o, a->o_stride);
    else panel_values(weights, rescale, heads, t->values + begin * TILE_W, end - begin, a->v.width, o, a->o_stride);
}
/* Without the rows of weight 0: an infinite value would make a NaN of it. */
static void add_weighty_values(attending *t, int64_t n) {
    static const float one = 1;
    for (int64_t h = 0; h < t->a->heads; h++) {
        const float *weights = t->scores + h * CBQ_STEP, *rescale = t->rescale + h;
        int64_t begin = 0;
        while (begin < n) {
            int64_t end = begin;
            while (end < n && weights[end] != 0) end++;
            add_values(t, h, 1, begin, end, rescale);
            rescale = &one;
            for (begin = end; begin < n && weights[begin] == 0;) begin++;
        }
    }
}

CBQ_FN void attend_step(attending *t, int64_t i, int64_t n) {
    const cbq_attend_args *a = t->a;
    const uint8_t **values = values_rows(t), **next = values + CBQ_STEP;
    if (!t->same) find_rows(t, &a->v, i, n, values);
    if (i + n < a->end) find_rows(t, &a->k[0], i + n, rows_of_step(t, i + n), next);
    if (t->few) {
        const int64_t whole = (n + CBQ_LANES - 1) / CBQ_LANES * CBQ_LANES; /* softmax looks at whole vectors */
        few_scores(a->q, a->q_stride, a->heads, t->rows, whole, &a->k[0], t->after_keys, t->scores);
    } else {
        make_keys(t, i, n);
        panel_scores(a->q, a->q_stride, a->heads, t->keys, t->depth, n, t->scores);
        if (!t->same) rows_to_values(values, n, &a->v, t->after_values, t->values);
    }
    if (softmax_step(t->scores, a->heads, n, a->largest, a->total, t->rescale)) add_weighty_values(t, n);
    else add_values(t, 0, a->heads, 0, n, t->rescale);
    memcpy(t->rows, next, (size_t)CBQ_STEP * sizeof *next);
}

/* For few heads rows are read in one stream, and asked for a little before; panels are made in a hurry and then worked on for long, so
   that the rows of the next one are asked for. */
CBQ_FN rows_ahead ahead_of(const attending *t, const uint8_t *const *rows, const cbq_rows *of) {
    const int64_t bytes = cbq_row_bytes(of), distance = t->few ? ASK_BYTES / (bytes + 1) : CBQ_STEP;
    return (rows_ahead){rows + (distance < 1 ? 1 : distance < CBQ_STEP ? distance : CBQ_STEP), bytes};
}

static void attend(const cbq_attend_args *a) {
    attending t = {.a = a};
    for (int part = 0; part < a->parts; part++) t.depth += cbq_padded_width(a->k[part].width);
    t.few = a->heads <= CBQ_FEW_HEADS && a->parts == 1 && a->k[0].width % CBQ_LANES == 0 && a->v.width % CBQ_LANES == 0;
    t.same = values_are_keys(a);
    t.scores = a->scratch;
    t.rescale = t.scores + a->heads * CBQ_STEP;
    t.keys = t.rescale + (a->heads + 15) / 16 * 16;
    t.values = t.keys + t.depth * CBQ_STEP;
    t.after_keys = ahead_of(&t, t.rows, &a->k[0]);
    if (!t.same) t.after_values = ahead_of(&t, values_rows(&t), &a->v);
    for (int64_t h = 0; h < a->heads; h++) a->largest[h] = -INFINITY, a->total[h] = 0;
    memset(a->o, 0, (size_t)(a->heads * a->o_stride) * 4);
    if (a->begin < a->end) find_rows(&t, &a->k[0], a->begin, rows_of_step(&t, a->begin), t.rows);
    for (int64_t i = a->begin; i < a->end; i += CBQ_STEP) attend_step(&t, i, rows_of_step(&t, i));
}
