/* What attention offers: one table of functions for each instruction set, filled by isa/attention/NAME.c. */
#pragma once
#include "../kernels/kernels.h"

enum {
    CBQ_STEP = 64,        /* rows of a cache that are worked on at a time */
    CBQ_PARTS = 2,        /* a key may lie in so many places, each of which has some of its columns */
    CBQ_FEW_HEADS = 24,   /* up to so many heads rows are read where they lie (few.h), for more they go through panels (panel.h) */
    CBQ_MAX_PIECES = 128, /* of one sequence, at most */
    CBQ_O_UNIT = 64,      /* columns of partial results come in so many */
    CBQ_WIDTH_UNIT = 8    /* columns of queries, each part by itself, with zeros for what is not there */
};

CBQ_FN int64_t cbq_padded_width(int64_t width) { return (width + CBQ_WIDTH_UNIT - 1) / CBQ_WIDTH_UNIT * CBQ_WIDTH_UNIT; }
CBQ_FN int64_t cbq_padded_o(int64_t width) { return (width + CBQ_O_UNIT - 1) / CBQ_O_UNIT * CBQ_O_UNIT; }

/* Rows of `width` floats, `stride` bytes apart. */
typedef struct {
    const uint8_t *data;
    int64_t stride, width;
    int dtype;
} cbq_rows;
CBQ_FN int64_t cbq_row_bytes(const cbq_rows *r) { return r->width * (r->dtype == CBQ_F32 ? 4 : 2); }

/* Heads that share a cache, over the rows begin .. end - 1 of it, or of those that a list names. */
typedef struct {
    const float *q; /* scaled; for each head the columns of all parts, each part padded */
    int64_t q_stride, heads;
    cbq_rows k[CBQ_PARTS], v;
    int parts;
    const int64_t *list; /* or NULL */
    int64_t begin, end;
    float *largest, *total; /* out: of each head the maximum of its logits, and the sum of their exponentials less that */
    float *o;               /* out: of each head the values weighted with these exponentials */
    int64_t o_stride;
    float *scratch; /* of cbq_attend_floats, aligned to 64 bytes */
} cbq_attend_args;

/* Keys of `depth` columns, padded; values of `width`. */
CBQ_FN int64_t cbq_attend_floats(int64_t heads, int64_t depth, int64_t width) {
    const int64_t wide = cbq_padded_o(depth > width ? depth : width);
    return heads * CBQ_STEP + (heads + 15) / 16 * 16 + (depth + wide) * CBQ_STEP;
}

/* Partial results of one head: those of a piece are `step` floats after those of the piece before, and `o_step`. */
typedef struct {
    int64_t pieces, step, o_step, width;
    const float *largest, *total, *o;
    float sink; /* -infinity: none */
    uint8_t *out;
    int dtype;
} cbq_merge_args;

/* The indexer's scores of the rows begin .. end - 1. */
typedef struct {
    const float *q, *w; /* rows of `heads` queries, padded; their weights */
    int64_t q_stride, heads;
    cbq_rows k;         /* those of the first head */
    int64_t of_head;    /* bytes to those of the next one; 0: all heads have the same */
    int64_t begin, end;
    float *scores, *scratch; /* out; of cbq_index_floats */
} cbq_index_args;

CBQ_FN int64_t cbq_index_floats(int64_t width) { return (cbq_padded_width(width) + cbq_padded_o(width)) * CBQ_STEP; }

typedef struct {
    void (*exp)(const float *x, float *y, int64_t n); /* lanes/exp.h on an array; y may be x */
    void (*attend)(const cbq_attend_args *args);
    void (*merge)(const cbq_merge_args *args);
    /* o = sum of n weights times rows: `o` of cbq_padded_o(width) floats, scratch of CBQ_STEP times that. */
    void (*weighted_rows)(const float *weights, int64_t n, const cbq_rows *rows, float *o, float *scratch);
    void (*index_scores)(const cbq_index_args *args);

    /* top.h */
    int64_t (*scores_above)(const float *scores, int64_t n, float limit, int32_t base, int32_t *to);
    void (*scores_to_order)(int32_t *v, int64_t n);
    int64_t (*count_from)(const int32_t *v, int64_t n, int32_t least);
} cbq_attention;

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif
extern const cbq_attention cbq_attention_scalar, cbq_attention_avx2, cbq_attention_avx512, cbq_attention_neon;
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
