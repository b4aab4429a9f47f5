/* Planes: codes in one array, scales in another. Decoding, and what products want of them. */
#pragma once
#include "../dispatch.h"
#include "../planes/planes.h"
#include "../registry.h"
#include "../view.h"

typedef struct {
    const char *name;
    int code; /* CBQ_CODES_.., or -1 for a book of its own */
    int bits, order, group, scales, finish, multiple; /* see planes/planes.h */
} cbq_plane_format;
extern const cbq_plane_format cbq_plane_formats[CBQ_N_PLANE_FORMATS];

/* The index of a format, -1 where there is none. */
int cbq_find_plane_format(const char *name);

typedef enum { CBQ_SCALE_F32, CBQ_SCALE_F16, CBQ_SCALE_BF16, CBQ_SCALE_E8M0, CBQ_SCALE_E4M3, CBQ_N_SCALE_TYPES } cbq_scale_type;
extern const int cbq_scale_bytes[CBQ_N_SCALE_TYPES];

/* Code number row * k + column belongs to an element. Its scale, with tiles of rows and columns inside each matrix:
     (row / matrix * ceil(matrix / tile_rows) + row % matrix / tile_rows) * ceil(k / tile_columns) + column / tile_columns
   and with flat blocks of tile_columns elements (tile_rows is 0): (row * k + column) / tile_columns. */
typedef struct {
    int format, packed, scale_type;
    int global_op; /* CBQ_GLOBAL_.. */
    float global;
    int64_t rows, matrix, k; /* matrix: rows of one */
    int64_t tile_rows, tile_columns;
    cbq_view codes, scales;
} cbq_planes;

/* The scale of an element of a row, in tiles: the first of its row of tiles. Not for flat blocks. */
int64_t cbq_plane_first_scale(const cbq_planes *p, int64_t row);

/* The bits of a stored code, and the number of scales. */
int cbq_plane_bits(const cbq_planes *p);
int64_t cbq_plane_scales(const cbq_planes *p);
/* Does all of it fit together? */
cbq_code cbq_check_planes(const cbq_planes *p, cbq_status *st);

/* Elements `at` .. at + n - 1 of a row; of formats with a group of their own, whole groups. */
void cbq_planes_to_float(const cbq_planes *p, const cbq_level *level, int64_t row, int64_t at, int64_t n, int dtype, uint8_t *y);
/* They times m vectors, as cbq_dot_f32_fn; the first of them begins a byte. */
void cbq_planes_dot(const cbq_planes *p, const cbq_level *level, int64_t row, int64_t at, int64_t n, const float *x, int64_t stride, int m, float *y);
/* The same elements, multiples of 32, as blocks of kernels/bytes_block.h. */
void cbq_planes_to_bytes(const cbq_planes *p, const cbq_level *level, int64_t row, int64_t at, int64_t n, uint8_t *blocks, int block_bytes);
/* Those of mxfp4's planes as blocks of mxfp4 with the bytes of the planes: of a block's elements i and i + 16, the first is element 2 i. */
void cbq_pairs_to_blocks(const cbq_planes *p, int64_t row, int64_t at, int64_t n, uint8_t *blocks);

typedef struct {
    cbq_planes planes;
    int dtype;   /* CBQ_F32, CBQ_F16, CBQ_BF16 */
    int threads; /* 1 and up, or 0 for the default */
    int stream;  /* stores past the cache: 1, 0, or -1 to decide by the size */
    const cbq_level *level;
    cbq_out out;
} cbq_dequant_planes_args;

cbq_code cbq_dequant_planes(const cbq_dequant_planes_args *args, cbq_status *st);

/* n scales from number `first` on as floats; NaN is the default one. */
void cbq_load_scales(const cbq_planes *p, const cbq_level *level, int64_t first, int64_t n, float *to);
