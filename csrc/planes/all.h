/* Everything of planes, and the table of their functions. Included by isa/planes/NAME.c after a file of word/ and one of lanes/. */
#pragma once
#include "../lanes/common.h"
#include "decode.h"
#include "encode.h"

/* Kinds of codes by name, and the words of the rows of planes.h. */
#define CBQ_KIND_CONSTANT(name, exponent, mantissa, bias, top) enum { name##_exponent = exponent, name##_mantissa = mantissa, name##_bias = bias, name##_top = CBQ_TOP_##top };
CBQ_CODE_KINDS(CBQ_KIND_CONSTANT)
#define KIND(k) .code = {k##_exponent, k##_mantissa, k##_bias, k##_top}, .book = cbq_e2m1_values
#define BOOK(t) .book = cbq_##t##_values, .by_value = cbq_##t##_order

#define CBQ_PLANE_KIND(name, how, stored_bits, first, elements, end, times, ...) \
    static const plane_kind name##_##how = {__VA_ARGS__, .bits = stored_bits, .order = CBQ_##first, .group = elements, .finish = CBQ_##end, .multiple = times};
#define CBQ_PLANE_DECODER(name, how, OUT) \
    static void name##_##how##_to_##OUT(const cbq_plane_run *r, uint8_t *y) { plane_to_float(r, y, name##_##how, CBQ_##OUT); }
#define CBQ_PLANE_FUNCTIONS(name, how) \
    CBQ_PLANE_DECODER(name, how, F32) CBQ_PLANE_DECODER(name, how, F16) CBQ_PLANE_DECODER(name, how, BF16) \
    static void name##_##how##_dot(const cbq_plane_run *r, const float *x, int64_t stride, int m, float *y) { plane_dot(r, x, stride, m, y, name##_##how); } \
    static void name##_##how##_encode(const float *x, int64_t n, float scale, uint8_t *codes) { plane_encode(x, n, scale, codes, name##_##how); }
#define CBQ_PLANE_TO_BYTES(name) \
    static void name##_to_bytes(const cbq_plane_run *r, uint8_t *blocks) { plane_to_bytes(r, blocks, name##_UNPACKED); }

/* As a caller without packing has them: codes of 4 bits in pairs, those of 6 in bytes. Packed: those of 6 too. */
#define CBQ_PLANE(name, codes, bits, first, elements, scaling, end, times) \
    CBQ_PLANE_KIND(name, UNPACKED, ((bits) == 6 ? 8 : (bits)), first, elements, end, times, codes) \
    CBQ_PLANE_KIND(name, PACKED, bits, first, elements, end, times, codes) \
    CBQ_PLANE_FUNCTIONS(name, UNPACKED) CBQ_PLANE_FUNCTIONS(name, PACKED) CBQ_PLANE_TO_BYTES(name)
CBQ_PLANE_FORMATS(CBQ_PLANE)

#define CBQ_IF_PACKED(bits, function) ((bits) == 6 ? function : NULL)
#define CBQ_PLANE_FLOAT_ROW(name, how, bits) {name##_##how##_to_F32, name##_##how##_to_F16, name##_##how##_to_BF16}
#define CBQ_PLANE_PACKED_ROW(name, bits) \
    {CBQ_IF_PACKED(bits, name##_PACKED_to_F32), CBQ_IF_PACKED(bits, name##_PACKED_to_F16), CBQ_IF_PACKED(bits, name##_PACKED_to_BF16)}
#define CBQ_PLANE_FLOAT_ROWS(name, codes, bits, ...) {CBQ_PLANE_FLOAT_ROW(name, UNPACKED, bits), CBQ_PLANE_PACKED_ROW(name, bits)},
#define CBQ_PLANE_DOT_ROWS(name, codes, bits, ...) {name##_UNPACKED_dot, CBQ_IF_PACKED(bits, name##_PACKED_dot)},
#define CBQ_PLANE_ENCODE_ROWS(name, codes, bits, ...) {name##_UNPACKED_encode, CBQ_IF_PACKED(bits, name##_PACKED_encode)},
#define CBQ_PLANE_BYTES_ROW(name, codes, bits, first, elements, scaling, end, times) ((times) ? name##_to_bytes : NULL),
#define CBQ_PLANE_TABLE { \
    .to_float = {CBQ_PLANE_FORMATS(CBQ_PLANE_FLOAT_ROWS)}, .dot = {CBQ_PLANE_FORMATS(CBQ_PLANE_DOT_ROWS)}, \
    .to_bytes = {CBQ_PLANE_FORMATS(CBQ_PLANE_BYTES_ROW)}, .encode = {CBQ_PLANE_FORMATS(CBQ_PLANE_ENCODE_ROWS)}, .largest = plane_largest}
