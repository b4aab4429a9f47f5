/* The weights of a product: rows of blocks, or of planes. */
#pragma once
#include "matmul.h"

/* The blocks that products of integers see: what they are, and their place in tables of kernels. */
extern const cbq_format cbq_plane_bytes16, cbq_plane_bytes32;
static inline int cbq_has_groups_of_16(const cbq_matmul_args *a) { return cbq_plane_formats[a->planes->format].group == 16; }
/* mxfp4's planes have the bytes of its blocks. Only the order of their elements is another, and a sum over all of them does not
   care, where x is in that order too: cbq_split_pairs. */
static inline int cbq_has_pairs(const cbq_matmul_args *a) { return a->planes && a->planes->format == CBQ_PLANES_mxfp4_planes; }
static inline int cbq_int_place(const cbq_matmul_args *a) {
    if (!a->planes) return a->format;
    if (cbq_has_pairs(a)) return cbq_find_format("mxfp4");
    return cbq_has_groups_of_16(a) ? CBQ_PLANE_BYTES16 : CBQ_PLANE_BYTES32;
}
static inline const cbq_format *cbq_int_format(const cbq_matmul_args *a) {
    if (!a->planes || cbq_has_pairs(a)) return &cbq_formats[cbq_int_place(a)];
    return cbq_has_groups_of_16(a) ? &cbq_plane_bytes16 : &cbq_plane_bytes32;
}
/* Each 32 elements in the order in which blocks with the bytes of pairs have them: the first ones of all pairs, then the others. */
static inline void cbq_split_pairs(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i += 32) {
        float pairs[32];
        memcpy(pairs, x + i, sizeof pairs);
        for (int j = 0; j < 16; j++) x[i + j] = pairs[2 * j], x[i + 16 + j] = pairs[2 * j + 1];
    }
}

/* Elements at .. at + n - 1 of a row as blocks of that format: where they are, or made at `to`, which has room for them. */
static inline const uint8_t *cbq_weight_blocks(const cbq_matmul_args *a, int64_t row, int64_t at, int64_t n, uint8_t *to) {
    if (!a->planes) return a->w.data + (row * a->k + at) / cbq_formats[a->format].elements * cbq_formats[a->format].bytes;
    if (cbq_has_pairs(a)) cbq_pairs_to_blocks(a->planes, row, at, n, to);
    else cbq_planes_to_bytes(a->planes, a->level, row, at, n, to, cbq_int_format(a)->bytes);
    return to;
}

/* The least number of elements that a part of a row consists of. */
static inline int cbq_weight_unit(const cbq_matmul_args *a) { return a->planes ? 32 : cbq_formats[a->format].elements; }

/* Where an element's code is. */
static inline uintptr_t cbq_weight_address(const cbq_matmul_args *a, int64_t row, int64_t at) {
    if (a->planes) return (uintptr_t)a->planes->codes.data + (uintptr_t)((row * a->k + at) * cbq_plane_bits(a->planes) / 8);
    return (uintptr_t)cbq_weight_blocks(a, row, at, 0, NULL);
}

/* Elements at .. at + n - 1 of a row as floats. */
static inline void cbq_weights_to_float(const cbq_matmul_args *a, int64_t row, int64_t at, int64_t n, int dtype, uint8_t *y) {
    if (a->planes) cbq_planes_to_float(a->planes, a->level, row, at, n, dtype, y);
    else a->level->kernels->to_float[a->format][dtype]((const uint8_t *)cbq_weight_address(a, row, at), y, n / cbq_formats[a->format].elements);
}

/* Is there a way to decode and multiply a row in one pass? It takes up to CBQ_DOT_M vectors. */
static inline int cbq_weights_have_dot(const cbq_matmul_args *a) {
    if (a->planes) return a->k * cbq_plane_bits(a->planes) % 8 == 0; /* no row begins inside a byte */
    return a->level->kernels->dot_f32[a->format] != NULL;
}
/* Elements at .. at + n - 1 of a row, whole units, times m vectors. */
static inline void cbq_weights_dot(const cbq_matmul_args *a, int64_t row, int64_t at, int64_t n, const float *x, int64_t stride, float *y) {
    if (a->planes) cbq_planes_dot(a->planes, a->level, row, at, n, x, stride, (int)a->m, y);
    else a->level->kernels->dot_f32[a->format](cbq_weight_blocks(a, row, at, n, NULL), n / cbq_formats[a->format].elements, x, stride, (int)a->m, y);
}
