/* Attention of one token over a compressed cache that all heads share. */
#pragma once
#include "../../array.h"
#include "../../dispatch.h"

typedef struct {
    const cbq_level *level;
    int threads;                           /* 1 and up, or 0 for the default */
    cbq_array q_nope, q_rope, w_uk;        /* [H, d], [H, r], [H, d, R] */
    cbq_array ckv, k_rope, out;            /* [n, R], [n, r], [H, R] */
    float scale;
} cbq_mla_args;

cbq_code cbq_mla(const cbq_mla_args *args, cbq_status *st);
