/* The operators of cbquant.deepseek that work element by element: arguments are checked, then rows go to threads. Shapes are those of
   cbquant's pages, and outputs may not overlap inputs (the caller has looked), but in rope, whose output may be x itself. */
#pragma once
#include "../../array.h"
#include "../../dispatch.h"
#include "../../view.h"

/* What every operator is told: threads 1 and up, or 0 for the default; stores past the cache: 1, 0, or -1 to decide by the size. */
typedef struct {
    const cbq_level *level;
    int threads, stream;
} cbq_how;

typedef struct {
    cbq_how how;
    cbq_array a, b, out; /* of one shape; dense last axes */
} cbq_vector_add_args;
cbq_code cbq_vector_add(cbq_vector_add_args *args, cbq_status *st);

typedef struct {
    cbq_how how;
    int scoring;              /* CBQ_SQRTSOFTPLUS, CBQ_SIGMOID */
    cbq_array logits, bias;   /* [T, E], [E]; dense last axes, as for the outputs */
    cbq_array unbiased, biased; /* [T, E] */
} cbq_router_args;
cbq_code cbq_router(const cbq_router_args *args, cbq_status *st);

typedef struct {
    cbq_how how;
    int scoring, normalize;
    int64_t k; /* 1 .. E */
    float scale;
    cbq_array logits, bias, weights; /* [T, E], [E], [T, k]; dense last axes */
    cbq_out ids;                     /* int32 [T, k], aligned */
} cbq_route_args;
cbq_code cbq_route(const cbq_route_args *args, cbq_status *st);

typedef struct {
    cbq_how how;
    int ape_on_gate;
    cbq_array gate, kv, ape, out; /* [W, P, D or 1], [W, P, D], [P, D], [W, D]; dense last axes */
} cbq_pool_args;
cbq_code cbq_pool(const cbq_pool_args *args, cbq_status *st);

typedef struct {
    cbq_how how;
    double eps;
    int iters, ends_with_columns, src_first;
    cbq_array mix, scale, base;  /* [T, 24], [3], [24]; dense last axes, as for the outputs */
    cbq_array pre, post, comb;   /* [T, 4], [T, 4], [T, 4, 4] */
} cbq_sinkhorn_args;
cbq_code cbq_sinkhorn_split(const cbq_sinkhorn_args *args, cbq_status *st);

/* Any strides; fastest where T or D is dense in all arrays but the weights. */
typedef struct {
    cbq_how how;
    cbq_array pre, h, out; /* [T, 4], [T, 4, D], [T, D] */
} cbq_collapse_args;
typedef struct {
    cbq_how how;
    int src_first;
    cbq_array block_out, post, comb, residual, out; /* [T, D], [T, 4], [T, 4, 4], [T, 4, D], [T, 4, D] */
} cbq_expand_args;
cbq_code cbq_collapse(const cbq_collapse_args *args, cbq_status *st);
cbq_code cbq_expand(const cbq_expand_args *args, cbq_status *st);

typedef struct {
    cbq_how how;
    int64_t n_rot; /* even, 2 .. head_dim */
    double theta;
    int inverse, neighbours;
    cbq_array x, out;   /* [.., T, heads, head_dim] or [T, head_dim]; dense last axes */
    cbq_view positions; /* T doubles, aligned */
    cbq_view frequencies; /* n_rot / 2 doubles, aligned: radians a position of each pair, in place of theta's powers; or no data */
} cbq_rope_args;
cbq_code cbq_rope(const cbq_rope_args *args, cbq_status *st);

typedef struct {
    cbq_how how;
    cbq_array gate, up, out; /* float32, of one shape, C-contiguous, aligned; out may be one of the others */
} cbq_swiglu_args;
cbq_code cbq_swiglu(const cbq_swiglu_args *args, cbq_status *st);
