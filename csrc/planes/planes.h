/* The formats of planes: codes lie in one array and their scales in another. One row each, the only list of them.

   ROW(name, codes, bits, order, group, scales, finish, multiple)
     codes     KIND(k): a kind of codecs/kinds.h. BOOK(t): indices of 16 floats of tables.h
     bits      of a code; those of 4 bits are always packed, two to a byte, and those of 6 may be, four to three bytes
     order     LOW or HIGH: which nibble of a byte is the first
     group     elements of a row under one scale; 0: the caller says, in tiles of rows and columns or in blocks
     scales    how they are stored: E8M0; E4M3; TILES: f32, f16, bf16 or e8m0, for tiles; ABSMAX: floats, for flat blocks
     finish    SCALED: value = code * scale. GLOBAL: that times, or divided by, one float for the whole tensor
     multiple  of the codes' values that is an integer; 0 where there is none of 8 bits

   Sources: OCP Microscaling Formats (MX) 1.0 for mx*, with the nibbles of gpt-oss' checkpoints for mxfp4; NVIDIA's ModelOpt for
   nvfp4; DeepSeek-V3's checkpoints for tiles; bitsandbytes for nf4 and fp4. */
#pragma once
#include "../codecs/kinds.h"

#define CBQ_PLANE_FORMATS(ROW) \
    ROW(mxfp4_planes, KIND(e2m1), 4, LOW, 32, E8M0, SCALED, 2) \
    ROW(nvfp4_planes, KIND(e2m1), 4, LOW, 16, E4M3, GLOBAL, 2) \
    ROW(fp8_e4m3, KIND(e4m3fn), 8, LOW, 0, TILES, SCALED, 0) \
    ROW(fp8_e5m2, KIND(e5m2), 8, LOW, 0, TILES, SCALED, 0) \
    ROW(nf4, BOOK(nf4), 4, HIGH, 0, ABSMAX, SCALED, 0) \
    ROW(fp4, BOOK(fp4), 4, HIGH, 0, ABSMAX, SCALED, 0) \
    ROW(mxfp8_e4m3, KIND(e4m3fn), 8, LOW, 32, E8M0, SCALED, 0) \
    ROW(mxfp8_e5m2, KIND(e5m2), 8, LOW, 32, E8M0, SCALED, 0) \
    ROW(mxfp6_e3m2, KIND(e3m2), 6, LOW, 32, E8M0, SCALED, 0) \
    ROW(mxfp6_e2m3, KIND(e2m3), 6, LOW, 32, E8M0, SCALED, 0) \
    ROW(mxint8, KIND(mxint8), 8, LOW, 32, E8M0, SCALED, 64)

#define CBQ_PLANE_INDEX(name, ...) CBQ_PLANES_##name,
enum { CBQ_PLANE_FORMATS(CBQ_PLANE_INDEX) CBQ_N_PLANE_FORMATS };

enum { CBQ_LOW, CBQ_HIGH };
enum { CBQ_SCALES_E8M0, CBQ_SCALES_E4M3, CBQ_SCALES_TILES, CBQ_SCALES_ABSMAX };
enum { CBQ_SCALED, CBQ_GLOBAL };
enum { CBQ_GLOBAL_NONE, CBQ_GLOBAL_MULTIPLY, CBQ_GLOBAL_DIVIDE };

/* Codes that follow each other in a row, `groups` times `group` of them with a scale for each group. A format whose group is
   given has no other; the last one may then be cut: n codes in all. */
typedef struct {
    const uint8_t *codes;
    const float *scales;
    int64_t n, group;
    float global;
    int global_op; /* CBQ_GLOBAL_.. */
} cbq_plane_run;

typedef void cbq_plane_to_float_fn(const cbq_plane_run *run, uint8_t *y);
/* y[i] += the run times the vector x + i * stride, for i = 0 .. m - 1, 1 <= m <= CBQ_DOT_M */
typedef void cbq_plane_dot_fn(const cbq_plane_run *run, const float *x, int64_t stride, int m, float *y);
/* n / 32 blocks of kernels/bytes_block.h, with as many scales as they have groups: codes times `multiple`, scales divided by it */
typedef void cbq_plane_to_bytes_fn(const cbq_plane_run *run, uint8_t *blocks);
/* n numbers to codes of x / scale, to nearest; what is beyond the largest code becomes that. Under the scale 0 they are zeros. */
typedef void cbq_plane_encode_fn(const float *x, int64_t n, float scale, uint8_t *codes);

/* By format; then CBQ_UNPACKED or CBQ_PACKED (see codecs/kinds.h), which matters for codes of 6 bits only: NULL for others. */
typedef struct {
    cbq_plane_to_float_fn *to_float[CBQ_N_PLANE_FORMATS][2][3]; /* then CBQ_F32, CBQ_F16, CBQ_BF16 */
    cbq_plane_dot_fn *dot[CBQ_N_PLANE_FORMATS][2];
    cbq_plane_to_bytes_fn *to_bytes[CBQ_N_PLANE_FORMATS];       /* NULL without a multiple */
    cbq_plane_encode_fn *encode[CBQ_N_PLANE_FORMATS][2];
    float (*largest)(const float *x, int64_t n);                /* magnitude of n finite numbers */
} cbq_plane_kernels;

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif
extern const cbq_plane_kernels cbq_planes_scalar, cbq_planes_avx2, cbq_planes_avx512, cbq_planes_neon;
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
