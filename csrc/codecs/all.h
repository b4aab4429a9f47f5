/* Every codec on arrays, and the table of their functions. Included by isa/codecs/NAME.c after a file of word/ and one of lanes/. */
#pragma once
#include <stddef.h>

#include "../lanes/common.h"
#include "codecs.h"
#include "rounding.h"
#include "values.h"

enum { PIECE = 32 }; /* values that are encoded at a time */

/* ---- codes to floats ---- */

CBQ_FN void word_of_codes(const uint8_t *codes, uint8_t *y, cbq_code_kind k, int bits, int dtype) {
    F v[CBQ_VECTORS];
    ld_code_values(codes, bits, k, v);
    f_store(y, v, dtype == CBQ_BF16 ? CBQ_BF16_QUIET : dtype);
}
/* The last codes go through memory of their own, so that nothing beyond the arrays is touched. */
CBQ_FN void codes_to_float(const uint8_t *codes, uint8_t *y, int64_t n, cbq_code_kind k, int bits, int dtype) {
    const int size = dtype == CBQ_F32 ? 4 : 2;
    for (; n >= CBQ_W; n -= CBQ_W, codes += CBQ_W * bits / 8, y += CBQ_W * size) word_of_codes(codes, y, k, bits, dtype);
    if (n == 0) return;
    uint8_t last[CBQ_W] = {0}, values[CBQ_W * 4];
    memcpy(last, codes, (size_t)(n * bits / 8));
    word_of_codes(last, values, k, bits, dtype);
    memcpy(y, values, (size_t)(n * size));
}

/* ---- floats to codes ---- */

CBQ_FN void piece_to_codes(const float *x, uint8_t *codes, cbq_code_kind k, int bits, int saturate) {
    I code[CBQ_OF_32];
    CBQ_UNROLL_ALL
    for (int i = 0; i < CBQ_OF_32; i++) code[i] = code_of(f_ld(x + i * CBQ_LANES), k, saturate);
    st_codes(codes, code, bits);
}
CBQ_FN void floats_to_codes(const float *x, uint8_t *codes, int64_t n, cbq_code_kind k, int bits, int saturate) {
    for (; n >= PIECE; n -= PIECE, x += PIECE, codes += PIECE * bits / 8) piece_to_codes(x, codes, k, bits, saturate);
    if (n == 0) return;
    float last[PIECE] = {0};
    uint8_t coded[PIECE];
    memcpy(last, x, (size_t)n * 4);
    piece_to_codes(last, coded, k, bits, saturate);
    memcpy(codes, coded, (size_t)(n * bits / 8));
}

static void round_to_odd(const uint8_t *x, float *y, int64_t n) {
    for (; n >= CBQ_LANES; n -= CBQ_LANES, x += CBQ_LANES * 8, y += CBQ_LANES) f_st_f32(y, f_ld_f64_odd(x));
    if (n == 0) return;
    double last[CBQ_LANES] = {0};
    float rounded[CBQ_LANES];
    memcpy(last, x, (size_t)n * 8);
    f_st_f32(rounded, f_ld_f64_odd((const uint8_t *)last));
    memcpy(y, rounded, (size_t)n * 4);
}

/* ---- one function for each kind, way of storing and type ---- */

CBQ_FN int stored_bits(cbq_code_kind k, int packed) { return packed ? cbq_code_bits(k) : 8; }
CBQ_FN void blocks_to_float(const uint8_t *codes, uint8_t *y, int64_t n, cbq_code_kind k, int packed, int dtype) {
    codes_to_float(codes, y, n * cbq_codes_of_block(k, packed), k, stored_bits(k, packed), dtype);
}
CBQ_FN void floats_to_blocks(const float *x, uint8_t *codes, int64_t n, cbq_code_kind k, int packed, int saturate) {
    floats_to_codes(x, codes, n * cbq_codes_of_block(k, packed), k, stored_bits(k, packed), saturate);
}

#define CBQ_KIND_CONSTANT(name, exponent, mantissa, bias, top) static const cbq_code_kind name##_kind = {exponent, mantissa, bias, CBQ_TOP_##top};
CBQ_CODE_KINDS(CBQ_KIND_CONSTANT)

#define CBQ_DECODER(name, how, OUT) \
    static void name##_##how##_to_##OUT(const uint8_t *codes, uint8_t *y, int64_t n) { blocks_to_float(codes, y, n, name##_kind, CBQ_##how, CBQ_##OUT); }
#define CBQ_ENCODER(name, how) \
    static void name##_to_##how(const float *x, uint8_t *codes, int64_t n, int saturate) { floats_to_blocks(x, codes, n, name##_kind, CBQ_##how, saturate); }
#define CBQ_DECODERS(name, how) CBQ_DECODER(name, how, F32) CBQ_DECODER(name, how, F16) CBQ_DECODER(name, how, BF16)
#define CBQ_CODEC(name, ...) CBQ_DECODERS(name, UNPACKED) CBQ_DECODERS(name, PACKED) CBQ_ENCODER(name, UNPACKED) CBQ_ENCODER(name, PACKED)
CBQ_CODE_KINDS(CBQ_CODEC)

/* Codes of 8 bits are packed as they are, and those of e8m0 are chosen by a rule (scale_codes.h). */
#define CBQ_IF_PACKED(exponent, mantissa, function) ((exponent) + (mantissa) < 7 ? function : NULL)
#define CBQ_IF_ROUNDED(top, function) (CBQ_TOP_##top != CBQ_TOP_SCALE ? function : NULL)
#define CBQ_DECODER_ROW(name, e, m, ...) {name##_UNPACKED_to_F32, name##_UNPACKED_to_F16, name##_UNPACKED_to_BF16}
#define CBQ_UNPACKER(name, e, m, OUT) CBQ_IF_PACKED(e, m, name##_PACKED_to_##OUT)
#define CBQ_UNPACKER_ROW(name, e, m, ...) {CBQ_UNPACKER(name, e, m, F32), CBQ_UNPACKER(name, e, m, F16), CBQ_UNPACKER(name, e, m, BF16)}
#define CBQ_DECODER_ROWS(...) {CBQ_DECODER_ROW(__VA_ARGS__), CBQ_UNPACKER_ROW(__VA_ARGS__)},
#define CBQ_ENCODER_ROWS(name, e, m, bias, top) {CBQ_IF_ROUNDED(top, name##_to_UNPACKED), CBQ_IF_PACKED(e, m, name##_to_PACKED)},
#define CBQ_CODEC_TABLE {{CBQ_CODE_KINDS(CBQ_DECODER_ROWS)}, {CBQ_CODE_KINDS(CBQ_ENCODER_ROWS)}, round_to_odd}
