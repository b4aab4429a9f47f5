/* What an instruction set offers: one table of functions, filled by isa/NAME.c from the list of formats. */
#pragma once
#include "../base.h"

#define CBQ_NO_ROW(...) 0, /* in a table, of formats that have no such function */
#define CBQ_MAX_FORMATS 64 /* room in the table: one initializer too many does not compile */
/* There are the blocks of bytes_block.h, which are no formats. */
#define CBQ_PLANE_BYTES16 (CBQ_MAX_FORMATS - 2)
#define CBQ_PLANE_BYTES32 (CBQ_MAX_FORMATS - 1)
enum { CBQ_PLANE_BYTES16_SIZE = 40, CBQ_PLANE_BYTES32_SIZE = 36 };
#define CBQ_DOT_Q8_M 4     /* the same in 8-bit integers */
#define CBQ_MAX_DOT_ROWS 4 /* rows of weights that such a pass takes at a time, at most */
#define CBQ_DOT_M 4        /* vectors that one pass over the weights multiplies with at most */

/* How far ahead one pass over weights asks for blocks. It reads each byte once, and the processor's own prefetching stays
   behind: on Sapphire Rapids q4_0 times one vector runs at 34 G operations/s with it and at 18 without, from memory; 1 KiB
   ahead gives 21, 2 KiB 32, 8 KiB 34. */
enum { CBQ_AHEAD = 4096 };

/* n blocks at `blocks` to n * elements values at y; neither needs any alignment. */
typedef void cbq_to_float_fn(const uint8_t *blocks, uint8_t *y, int64_t n);

/* y[i] = the row of n blocks times the vector x + i * stride, for i = 0 .. m - 1, 1 <= m <= CBQ_DOT_M. */
typedef void cbq_dot_f32_fn(const uint8_t *blocks, int64_t n, const float *x, int64_t stride, int m, float *y);

/* Products of integers go in steps under one scale of the weights, and x has a scale for each block of it: 256 elements for
   formats of 256, as ggml has it, and in 16-bit integers. */
CBQ_FN int cbq_step(int group) { return group < 32 ? group : 32; }
CBQ_FN int cbq_x_block(int elements) { return elements == 256 ? 256 : 32; }

/* Codes, scales and mins of some rows side by side: see panel.h. */
typedef struct {
    uint8_t *codes;       /* k / 4 vectors, aligned to 64 bytes as the others */
    float *scales, *mins; /* k / step vectors each */
    uintptr_t next;       /* as many bytes as are read are asked for from here on: they are the next to be wanted */
} cbq_panel;

/* n blocks of each of `panel_rows` rows. */
typedef void cbq_to_panel_fn(const uint8_t *const *rows, int64_t n, const cbq_panel *panel);

/* A vector as integers with a scale for each `block` of its n elements: x = scale * q, q symmetric up to the type's largest.
   quad_sums gets the sum of each four of q. 0 where an element is NaN or infinite. */
typedef int cbq_quantize_x_fn(const float *x, int64_t n, int block, void *q, float *scales, int32_t *quad_sums);

/* Rows of x as integers, `scale` times what they stand for, for each so many elements (32 or 256), times a panel:
   y[i * y_stride + lane] += x[i] * w[lane], i = 0 .. m - 1. */
typedef struct {
    cbq_panel panel;
    const uint8_t *x;      /* int8_t; or int16_t, each four in the order 0 2 1 3 */
    const int32_t *starts; /* -bias times the sum of x over each step */
    const float *sums;     /* the sum of x over each step; times the scale of x where x_block is 32 */
    const float *scales;
    float *y;
    int64_t x_stride, step_stride, scale_stride; /* from a row to the next: bytes, steps, scales */
    int64_t y_stride, m, k;
    int step, x_block, bits, has_min; /* elements of a step; of a scale of x; of the codes */
} cbq_int_args;
typedef void cbq_int_fn(const cbq_int_args *args);

/* Up to CBQ_DOT_Q8_M rows of x as integers, for one pass over the weights: as in cbq_int_args, but for `quad_starts`, which begin
   the sum of each four elements (-bias times the sum of x there), and `scaled_sums`, the sums of x over each step times its
   scale, followed by 64 zero bytes. */
typedef struct {
    const int8_t *x;
    const int32_t *quad_starts;
    const float *scaled_sums, *scales;
    int64_t x_stride, quad_stride, step_stride, scale_stride; /* in elements of each */
    int m;
} cbq_int_dot_args;
/* y[i * dot_rows + r] = row r of n blocks times row i of x. Meanwhile as many bytes from `next` on are asked for. */
typedef void cbq_int_dot_fn(const uint8_t *const *rows, int64_t n, uintptr_t next, const cbq_int_dot_args *x, float *y);

/* Products of integers, for the panels of one or more sets of kernels. */
typedef struct {
    cbq_int_fn *q8, *q16;
    cbq_int_dot_fn *dot_q8[CBQ_MAX_FORMATS]; /* none for plain types */
    int dot_rows;                            /* rows of weights that it takes */
    int wide_is_signed; /* q8 takes the bias off 8-bit codes itself: starts are 0 then */
} cbq_int_kernels;

/* y[i * y_stride + j] = (add: that +) the product of row i of x and row j of w, which are `bytes` long: whole vectors,
   so pad with zeros. Strides of x and w in bytes. */
typedef struct {
    const uint8_t *x, *w;
    float *y;
    int64_t x_stride, w_stride, y_stride, m, n, bytes;
    int add;
} cbq_tile_args;
typedef void cbq_tile_fn(const cbq_tile_args *args);

typedef struct {
    cbq_to_float_fn *to_float[CBQ_MAX_FORMATS][3]; /* by index of the format, then CBQ_F32, CBQ_F16, CBQ_BF16 */
    cbq_dot_f32_fn *dot_f32[CBQ_MAX_FORMATS];      /* none for plain types */
    int dot_x_bytes; /* vectors of more bytes, all of them together, are better multiplied in parts; 0: never */
    cbq_tile_fn *tile_f32;
    cbq_to_panel_fn *to_panel[CBQ_MAX_FORMATS];    /* none for plain types */
    int panel_rows;
    cbq_quantize_x_fn *quantize_q8, *quantize_q16;
    /* A copy with stores past the cache; dst is aligned to 64 bytes and `bytes` is a multiple of 64. The caller fences. */
    void (*stream_copy)(uint8_t *dst, const uint8_t *src, int64_t bytes);
    /* It beats stores through the cache with up to so many threads (0: never), and for outputs of at least so many bytes (0: twice
       the last cache) where that cache is large: see cbq_should_stream. */
    int stream_threads;
    int64_t stream_from;
} cbq_kernels;

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif
extern const cbq_kernels cbq_kernels_scalar, cbq_kernels_avx2, cbq_kernels_avx512, cbq_kernels_neon;
cbq_tile_fn cbq_tile_bf16_avx512, cbq_tile_bf16_neon;
extern const cbq_int_kernels cbq_int_scalar, cbq_int_avx2, cbq_int_avxvnni, cbq_int_avx512, cbq_int_avx512vnni, cbq_int_neon, cbq_int_neon_dotprod;
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
