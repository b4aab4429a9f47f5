/* Attention of one token a sequence, whatever its keys and values lie in: cut into pieces for threads, and joined. */
#pragma once
#include "../../array.h"
#include "../../dispatch.h"

/* Rows of sequence b and group g of heads begin at data + b * of_sequence + g * of_group. */
typedef struct {
    cbq_rows rows;
    int64_t of_sequence, of_group;
} cbq_cache;

typedef struct {
    const cbq_level *level;
    int threads;                   /* 1 and up, or 0 for the default */
    int64_t batch, heads, groups;  /* sequences; heads of each, and the groups of them that share a cache */
    const float *q;                /* [batch, heads, depth]: scaled, the columns of each part padded */
    int64_t depth;
    cbq_cache k[CBQ_PARTS], v;
    int parts;
    const int64_t *counts;         /* rows of each sequence */
    const int64_t *const *lists;   /* or NULL: which rows these are */
    const float *sink;             /* [heads], or NULL */
    cbq_array out;                 /* [batch, heads, width of v] */
} cbq_attention_job;

cbq_code cbq_run_attention(const cbq_attention_job *job, cbq_status *st);
