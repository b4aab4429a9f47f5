/* Which positions of a cache an indexer chooses. */
#pragma once
#include "../../array.h"
#include "../../dispatch.h"
#include "../../view.h"

typedef struct {
    const cbq_level *level;
    int threads; /* 1 and up, or 0 for the default */
    cbq_array score; /* [rows, n] */
    cbq_view lengths; /* int64 [rows]: so many scores of a row count, and k may be any number; or nothing: all, and k <= n */
    int64_t k;
    cbq_out out; /* int32 [rows, k], -1 where a row has fewer */
} cbq_topk_args;

cbq_code cbq_indexer_topk(const cbq_topk_args *args, cbq_status *st);

typedef struct {
    const cbq_level *level;
    int threads;    /* 1 and up, or 0 for the default */
    cbq_array q, k; /* [B, H, D]; [n, D] for all heads, or [n, H, D] */
    cbq_array w;    /* [B, H] */
    cbq_view lengths; /* of the choice: int64 [B], as above */
} cbq_index_inputs;

/* out: float32 [B, n]. */
cbq_code cbq_indexer_score(const cbq_index_inputs *in, const cbq_array *out, cbq_status *st);
/* out: int32 [B, k]: what cbq_indexer_topk chooses of these scores. */
cbq_code cbq_indexer_select(const cbq_index_inputs *in, int64_t k, const cbq_out *out, cbq_status *st);
