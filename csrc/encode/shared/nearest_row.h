/* The row of a grid of 8 codes of 2 bits that is nearest to 8 elements, among the neighbours of a word that is not on it. */
#pragma once
#include <float.h>

#include "../neighbours.h"

/* What an element adds to the distance with each code, w (level - x)^2. levels: four, again and again. */
CBQ_FN T distances_of_codes(F levels, float x, float w) {
    float of_code[CBQ_LANES + 4] __attribute__((aligned(64)));
    F difference = f_sub(levels, f_set1(x)), distance = f_mul(f_mul(f_set1(w), difference), difference);
    f_st_f32(of_code, distance);
    f_st_f32(of_code + 4, distance);
    return t_load8(of_code);
}

/* Neighbours in lanes. Of those that are equally near, the first one of the list. */
CBQ_FN int nearest_row(const cbq_neighbours *t, int word, float scale, const float levels[4], const float x[8], const float w[8]) {
    float scaled[16];
    for (int k = 0; k < 16; k++) scaled[k] = scale * levels[k & 3];
    const uint16_t *words = t->words + t->first[word];
    T of_code[8];
    for (int i = 0; i < 8; i++) of_code[i] = distances_of_codes(f_ld(scaled), x[i], w[i]);
    F least = f_set1(FLT_MAX);
    I found = i_set1(0);
    for (int k = 0; k < t->count[word]; k += CBQ_LANES) {
        I neighbours = i_ld_u16(words + k);
        F sum = t_pick8(of_code[0], neighbours);
        CBQ_UNROLL_ALL
        for (int i = 1; i < 8; i++) sum = f_add(sum, t_pick8(of_code[i], i_shr(neighbours, 2 * i)));
        found = i_select(m_lt(sum, least), i_set1(k), found);
        least = f_min(sum, least);
    }
    int32_t at[CBQ_LANES];
    i_st(at, found);
    int first = t->count[word] - 1;
    for (uint32_t lanes = m_bits(m_eq(least, f_set1(f_smallest(least)))); lanes; lanes &= lanes - 1) {
        int place = at[__builtin_ctz(lanes)] + __builtin_ctz(lanes);
        first = place < first ? place : first;
    }
    return words[first];
}
