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
