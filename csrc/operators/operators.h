/* What the operators of cbquant.deepseek that work element by element offer: one table of functions for each instruction set, filled
   by isa/operators/NAME.c. Rows are contiguous and begin anywhere; nothing beyond them is touched. `float *` is memory of the caller's
   own (scratch.h), or an input that is read as vectors only. */
#pragma once
#include "../base.h"

/* Where memory is the limit there is a function for rows that all are f32, f16 or bf16 (CBQ_F32 ..) and one for any mixture. */
enum { CBQ_MIXED = 3, CBQ_N_MIXES };

/* `past`: whole pieces of CBQ_PIECE elements are stored past the cache. Then y begins at a cache line, and the caller fences. */
enum { CBQ_PIECE = 32 };

/* y = a + b, n elements. */
typedef struct {
    const uint8_t *a, *b;
    uint8_t *y;
    int64_t n;
    int a_dtype, b_dtype, y_dtype, past;
} cbq_add_row;

/* y[o] = the sum over i of w[o][i] x[i]: one row of 4 (mhc_collapse), or four rows of 5 (mhc_expand: the block's output and the
   residuals). w[o][i] is at w + (o * number of x + i) * w_step: one weight for the row, or one for each element from there on. */
enum { CBQ_STREAMS = 4, CBQ_EXPANDED = CBQ_STREAMS + 1 };
typedef struct {
    const uint8_t *x[CBQ_EXPANDED];
    uint8_t *y[CBQ_STREAMS];
    const float *w;
    int64_t w_step, n, first_ahead, x_ahead; /* `ahead`: bytes from an element to one that is to be asked for meanwhile */
    int first_dtype, x_dtype, y_dtype, past; /* of x[0]; of the other x; of y */
} cbq_mix_rows;
typedef void cbq_mix_rows_fn(const cbq_mix_rows *rows);

/* CBQ_TOKENS rows of 24 numbers to as many rows of CBQ_SPLIT, of which the first 24 are pre, post and comb. */
enum { CBQ_TOKENS = 16, CBQ_MIX = 24, CBQ_SPLIT = 32 };
typedef struct {
    float scale[3], base[CBQ_MIX], eps;
    int iters, ends_with_columns, src_first; /* comb is [src][dst] */
} cbq_sinkhorn;

/* Up to CBQ_POOL_ENTRIES entries of a window, n <= CBQ_POOL_COLUMNS columns of them; `state` goes from one block to the next. */
enum { CBQ_POOL_ENTRIES = 8, CBQ_POOL_COLUMNS = 256 };
typedef struct {
    float largest[CBQ_POOL_COLUMNS], sum[CBQ_POOL_COLUMNS], total[CBQ_POOL_COLUMNS];
} cbq_pool_state;
typedef struct {
    const float *gate[CBQ_POOL_ENTRIES], *kv[CBQ_POOL_ENTRIES], *ape[CBQ_POOL_ENTRIES];
    float weight[CBQ_POOL_ENTRIES]; /* where all columns have one gate; `gate` is not looked at then */
    cbq_pool_state *state;
    int64_t n;
    int entries, is_first, ape_on_gate;
} cbq_pool_block;

/* Pairs of a row are turned by angles: split[i] with split[i + half], or neighbours, whose tables hold each number twice and the sines
   of the first ones negated. y may be x. */
typedef struct {
    const uint8_t *x;
    uint8_t *y;
    const float *cosines, *sines;
    int64_t n; /* elements of the row */
    int past;  /* for split pairs the second half begins at a cache line too */
} cbq_rope_row;

enum { CBQ_SQRTSOFTPLUS, CBQ_SIGMOID };

/* n elements of one type to another; neither end needs any alignment. */
typedef void cbq_convert_fn(const uint8_t *x, uint8_t *y, int64_t n);

typedef struct {
    cbq_convert_fn *widen[3], *narrow[3]; /* by CBQ_F32 ..: to float32 (as it is: NULL), and from it */
    void (*add[CBQ_N_MIXES])(const cbq_add_row *row);
    cbq_mix_rows_fn *collapse[2][CBQ_N_MIXES], *expand[2][CBQ_N_MIXES]; /* 1: a weight for each element */
    void (*sinkhorn)(const cbq_sinkhorn *args, const float *mix, float *split);
    void (*pool)(const cbq_pool_block *block), (*pool_weighted)(const cbq_pool_block *block);
    void (*pool_end)(const cbq_pool_state *state, float *y, int64_t n);
    void (*softmax)(float *gates, int64_t n); /* room for n rounded up to 16; zeros where all are -inf */
    void (*rope[2][3])(const cbq_rope_row *row); /* 1: neighbours; by CBQ_F32 .. */
    /* n scores and the same with the bias added. */
    void (*score)(const float *logits, const float *bias, float *unbiased, float *biased, int64_t n, int scoring);
    /* The k largest of n scores, falling: keys whose low halves are the complements of their places. Ties to the lower place, NaN last. */
    void (*choose)(const float *scores, int64_t n, int64_t k, uint64_t *keys);
    void (*swiglu)(const float *gate, const float *up, float *y, int64_t n); /* gate / (1 + e^-gate) * up */
} cbq_operators;

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif
extern const cbq_operators cbq_operators_scalar, cbq_operators_avx2, cbq_operators_avx512, cbq_operators_neon;
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
