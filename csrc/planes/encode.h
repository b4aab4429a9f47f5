/* Values to codes of planes, under a scale that is known. Included after a file of word/ and one of lanes/. */
#pragma once
#include "../codecs/rounding.h"
#include "plane_kind.h"

enum { PIECE = 32 }; /* values at a time */

/* The nearest value of a book: how many of the midpoints between its neighbours are below x. Between -0 and 0 lies the last float
   below them, so that -0 becomes 0 as other zeros do. */
CBQ_FN I book_code(F x, plane_kind k, T codes_by_value) {
    I rank = i_set1(0);
    CBQ_UNROLL_ALL
    for (int i = 0; i < 15; i++) {
        float low = k.book[k.by_value[i]], high = k.book[k.by_value[i + 1]];
        float middle = low == high ? -0x1p-149f : (float)(((double)low + (double)high) / 2);
        rank = i_add(rank, i_where(m_lt(f_set1(middle), x), i_set1(1)));
    }
    return i_of_bits(t_pick16(codes_by_value, rank));
}

CBQ_FN void plane_piece_to_codes(const float *x, F scale, M has_scale, uint8_t *codes, plane_kind k, T codes_by_value) {
    I code[CBQ_OF_32];
    CBQ_UNROLL_ALL
    for (int i = 0; i < CBQ_OF_32; i++) {
        F v = f_where(has_scale, f_div(f_ld(x + i * CBQ_LANES), scale));
        code[i] = k.by_value ? book_code(v, k, codes_by_value) : code_of(v, k.code, 1);
        if (k.order == CBQ_HIGH) code[i] = i_of_bits(f_swap_pairs(f_of_bits(code[i])));
    }
    st_codes(codes, code, k.bits);
}

CBQ_FN void plane_encode(const float *x, int64_t n, float scale, uint8_t *codes, plane_kind k) {
    int32_t by_value[16] = {0};
    for (int i = 0; k.by_value && i < 16; i++) by_value[i] = k.by_value[i];
    const T codes_by_value = t_load16((const float *)(const void *)by_value);
    const F scales = f_set1(scale);
    const M has_scale = m_ne(scales, f_zero());
    for (; n >= PIECE; n -= PIECE, x += PIECE, codes += PIECE * k.bits / 8) plane_piece_to_codes(x, scales, has_scale, codes, k, codes_by_value);
    if (n == 0) return;
    float last[PIECE] = {0};
    uint8_t coded[PIECE];
    memcpy(last, x, (size_t)n * 4);
    plane_piece_to_codes(last, scales, has_scale, coded, k, codes_by_value);
    memcpy(codes, coded, (size_t)(n * k.bits + 7) / 8);
}

static float plane_largest(const float *x, int64_t n) {
    F largest = f_zero();
    for (; n >= CBQ_LANES; n -= CBQ_LANES, x += CBQ_LANES) largest = f_max(largest, f_abs(f_ld(x)));
    float last[CBQ_LANES] = {0};
    memcpy(last, x, (size_t)n * 4);
    return f_largest(f_max(largest, f_abs(f_ld(last))));
}
