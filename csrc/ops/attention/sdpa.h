/* Attention of one token of each sequence over its cache, or over a list of positions. */
#pragma once
#include "../../array.h"
#include "../../dispatch.h"
#include "../../view.h"

typedef struct {
    const cbq_level *level;
    int threads; /* 1 and up, or 0 for the default */
    cbq_array q, k, v, out; /* [B, H, D], [B, Hkv, n, D], [B, Hkv, n, Dv], [B, H, Dv] */
    float scale;
    cbq_view sink;    /* float32 [H], or no data */
    cbq_view lengths; /* int64 [B], or no data */
    cbq_view indices; /* int64 [lists, selected], or no data: positions, -1 for none */
    int64_t lists;    /* B, or 1 for all sequences */
} cbq_sdpa_args;

cbq_code cbq_sdpa(const cbq_sdpa_args *args, cbq_status *st);
