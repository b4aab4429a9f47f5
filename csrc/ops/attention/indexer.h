/* Which positions of a cache an indexer chooses. */
#pragma once
#include "../../array.h"
#include "../../dispatch.h"
#include "../../view.h"

typedef struct {
    const cbq_level *level;
    int threads; /* 1 and up, or 0 for the default */
    cbq_array score; /* [rows, n] */
    int64_t k;
    cbq_out out; /* int32 [rows, k] */
} cbq_topk_args;

cbq_code cbq_indexer_topk(const cbq_topk_args *args, cbq_status *st);

typedef struct {
    const cbq_level *level;
    int threads;    /* 1 and up, or 0 for the default */
    cbq_array q, k; /* [B, H, D]; [n, D] for all heads, or [n, H, D] */
    cbq_array w;    /* [B, H] */
} cbq_index_inputs;

/* out: float32 [B, n]. */
cbq_code cbq_indexer_score(const cbq_index_inputs *in, const cbq_array *out, cbq_status *st);
/* out: int32 [B, k]: what cbq_indexer_topk chooses of these scores. */
cbq_code cbq_indexer_select(const cbq_index_inputs *in, int64_t k, const cbq_out *out, cbq_status *st);
