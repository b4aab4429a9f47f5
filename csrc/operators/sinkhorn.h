/* mhc_sinkhorn_split: a token in each lane, so that the sums over rows and columns of its 4 x 4 matrix are sums of vectors. */
#pragma once
#include "pieces.h"
#include "../lanes/exp.h"
#include "../lanes/log.h"

enum { SIDE = CBQ_STREAMS };

CBQ_FN F sinkhorn_logit(const cbq_sinkhorn *a, const float *column, int i) {
    return f_fma(f_ld(column + i * CBQ_TOKENS), f_set1(a->scale[i < SIDE ? 0 : i < 2 * SIDE ? 1 : 2]), f_set1(a->base[i]));
}

/* The softmax over src of each row, a number for each of its lanes. */
CBQ_FN void sinkhorn_softmax(F row[SIDE], F eps) {
    F largest = f_max(f_max(row[0], row[1]), f_max(row[2], row[3]));
    CBQ_UNROLL_ALL
    for (int k = 0; k < SIDE; k++) row[k] = f_exp(f_sub(row[k], largest));
    F inverse = f_div(f_set1(1.0f), f_add(f_add(row[0], row[1]), f_add(row[2], row[3])));
    CBQ_UNROLL_ALL
    for (int k = 0; k < SIDE; k++) row[k] = f_fma(row[k], inverse, eps);
}

/* Four numbers divided by their sum + eps: one division and four products, each rounded once more. */
CBQ_FN void sinkhorn_scale(F *a, F *b, F *c, F *d, F eps) {
    F inverse = f_div(f_set1(1.0f), f_add(f_add(f_add(*a, *b), f_add(*c, *d)), eps));
    *a = f_mul(*a, inverse), *b = f_mul(*b, inverse), *c = f_mul(*c, inverse), *d = f_mul(*d, inverse);
}
CBQ_FN void sinkhorn_columns(F m[SIDE][SIDE], F eps) {
    CBQ_UNROLL_ALL
    for (int src = 0; src < SIDE; src++) sinkhorn_scale(&m[0][src], &m[1][src], &m[2][src], &m[3][src], eps);
}
CBQ_FN void sinkhorn_rows(F m[SIDE][SIDE], F eps) {
    CBQ_UNROLL_ALL
    for (int dst = 0; dst < SIDE; dst++) sinkhorn_scale(&m[dst][0], &m[dst][1], &m[dst][2], &m[dst][3], eps);
}

/* The matrix of CBQ_LANES tokens, at place dst * SIDE + src of `column`, or the other way round. */
CBQ_FN void sinkhorn_matrix(const cbq_sinkhorn *a, float *column) {
    const int dst_step = a->src_first ? 1 : SIDE, src_step = a->src_first ? SIDE : 1;
    const F eps = f_set1(a->eps);
    F m[SIDE][SIDE];
    CBQ_UNROLL_ALL
    for (int dst = 0; dst < SIDE; dst++) {
        CBQ_UNROLL_ALL
        for (int src = 0; src < SIDE; src++) m[dst][src] = sinkhorn_logit(a, column, 2 * SIDE + dst * dst_step + src * src_step);
        sinkhorn_softmax(m[dst], eps);
    }
    sinkhorn_columns(m, eps);
    for (int i = 1; i < a->iters; i++) {
        sinkhorn_rows(m, eps);
        sinkhorn_columns(m, eps);
    }
    if (!a->ends_with_columns) sinkhorn_rows(m, eps);
    CBQ_UNROLL_ALL
    for (int dst = 0; dst < SIDE; dst++) {
        CBQ_UNROLL_ALL
        for (int src = 0; src < SIDE; src++) f_st_f32(column + (2 * SIDE + dst * dst_step + src * src_step) * CBQ_TOKENS, m[dst][src]);
    }
}

static void sinkhorn(const cbq_sinkhorn *a, const float *mix, float *split) {
    float column[CBQ_SPLIT * CBQ_TOKENS] = {0}; /* number i of all tokens side by side */
    for (int t = 0; t < CBQ_TOKENS; t += CBQ_LANES) {
        float *mine = column + t;
        f_to_lanes(mix + t * CBQ_MIX, CBQ_MIX, CBQ_MIX, mine, CBQ_TOKENS);
        for (int i = 0; i < 2 * SIDE; i++) {
            F s = f_sigmoid(sinkhorn_logit(a, mine, i));
            f_st_f32(mine + i * CBQ_TOKENS, i < SIDE ? f_add(s, f_set1(a->eps)) : f_add(s, s));
        }
        sinkhorn_matrix(a, mine);
    }
    for (int i = 0; i < CBQ_SPLIT; i += CBQ_LANES) /* and back: the numbers are the places now, the tokens their neighbours */
        f_to_lanes(column + i * CBQ_TOKENS, CBQ_TOKENS, CBQ_TOKENS, split + i, CBQ_SPLIT);
}
