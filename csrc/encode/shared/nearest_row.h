/* The row of a grid of 8 codes of 2 bits that is nearest to 8 elements, among the neighbours of a word that is not on it. */
#pragma once
#include <float.h>

#include "../neighbours.h"

/* What element i adds to the distance with each code: w (scale level - x)^2. levels: four, twice. */
CBQ_FN T distances_of_codes(float scale, const float levels[8], float x, float w) {
    float of_code[CBQ_LANES > 8 ? CBQ_LANES : 8] __attribute__((aligned(64)));
    for (int k = 0; k < 8; k += CBQ_LANES) {
        F difference = f_sub(f_mul(f_set1(scale), f_ld(levels + k)), f_set1(x));
        f_st_f32(of_code + k, f_mul(f_mul(f_set1(w), difference), difference));
    }
    return t_load8(of_code);
}

/* Neighbours in lanes. Of those that are equally near, the first one of the list. */
CBQ_FN int nearest_row(const cbq_neighbours *t, int word, float scale, const float *levels, const float x[8], const float w[8]) {
    const uint16_t *words = t->words + t->first[word];
    T of_code[8];
    for (int i = 0; i < 8; i++) of_code[i] = distances_of_codes(scale, levels, x[i], w[i]);
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
