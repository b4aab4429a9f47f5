/* Rows of an iq3 grid near four elements: those with the least sum of root (scale q - x)^2 among the neighbours of a code
   word, the first one where several have it. q is 2 code + 1, whatever the value of the code in the format. A code word is
   four codes of 3 bits, the first in the lowest bits. */
#pragma once
#include <float.h>

#include "../neighbours.h"

enum { IQ3_CODES = 8, IQ3_MOST_TRIALS = 32 };
enum { IQ3_ROOM = 64 }; /* for trials: vectors of them may begin at any one */
#define IQ3_STEP 2 /* neighbours at a time: fewer numbers of turns for the processor to guess */
/* 2 code + 1, twice: for vectors of sixteen */
static const float iq3_odd[2 * IQ3_CODES] = {1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15};

CBQ_FN int iq3_code_of(int word, int i) { return word >> 3 * i & 7; }

/* IQ3_ROOM times code i: one shift, where taking out the code first would need two. */
CBQ_FN uint32_t iq3_place(uint32_t word, int i) { return (i < 2 ? word << (6 - 3 * i) : word >> (3 * i - 6)) & (IQ3_CODES - 1) * IQ3_ROOM; }

/* The sign of the difference does not matter, and a load is free as the second operand. */
CBQ_FN F iq3_error(F scaled, F x, F root) {
    F difference = f_sub(x, scaled);
    return f_mul(f_mul(root, difference), difference);
}

/* For CBQ_LANES trials; IQ3_ROOM * c floats from `scaled` on is 2 c + 1 times the scale of each. Lists are filled up with their
   first row, which never wins again. */
CBQ_FN I iq3_near_trials(const cbq_neighbours *t, int word, const float *x, const float *root, const float *scaled) {
    const uint16_t *near = t->words + t->first[word];
    const F x0 = f_set1(x[0]), x1 = f_set1(x[1]), x2 = f_set1(x[2]), x3 = f_set1(x[3]);
    const F root0 = f_set1(root[0]), root1 = f_set1(root[1]), root2 = f_set1(root[2]), root3 = f_set1(root[3]);
    F least = f_set1(FLT_MAX);
    I nearest = i_set1(near[0]);
    for (int first = 0; first < t->count[word]; first += IQ3_STEP) {
        CBQ_UNROLL_ALL
        for (int i = 0; i < IQ3_STEP; i++) {
            const uint32_t codes = near[first + i];
            F error = iq3_error(f_ld(scaled + iq3_place(codes, 0)), x0, root0);
            error = f_add(error, iq3_error(f_ld(scaled + iq3_place(codes, 1)), x1, root1));
            error = f_add(error, iq3_error(f_ld(scaled + iq3_place(codes, 2)), x2, root2));
            error = f_add(error, iq3_error(f_ld(scaled + iq3_place(codes, 3)), x3, root3));
            nearest = i_select(m_lt(error, least), i_set1((int)codes), nearest);
            least = f_min(error, least);
        }
    }
    return nearest;
}

/* For one scale, with the neighbours in lanes. */
CBQ_FN int iq3_near_scale(const cbq_neighbours *t, int word, const float *x, const float *root, float scale) {
    const uint16_t *near = t->words + t->first[word];
    float errors[4][IQ3_CODES < CBQ_LANES ? CBQ_LANES : IQ3_CODES], least = FLT_MAX;
    T table[4];
    int nearest = near[0];
    for (int i = 0; i < 4; i++) {
        for (int c = 0; c < IQ3_CODES; c += CBQ_LANES) {
            F scaled = f_mul(f_set1(scale), f_ld(iq3_odd + c));
            f_st_f32(errors[i] + c, iq3_error(scaled, f_set1(x[i]), f_set1(root[i])));
        }
        table[i] = t_load8(errors[i]);
    }
    for (int first = 0; first < t->count[word]; first += CBQ_LANES) {
        I words = i_ld_u16(near + first);
        F error = f_add(t_pick8(table[0], words), t_pick8(table[1], i_shr(words, 3)));
        error = f_add(error, t_pick8(table[2], i_shr(words, 6)));
        error = f_add(error, t_pick8(table[3], i_shr(words, 9)));
        float smallest = f_smallest(error);
        if (!(smallest < least)) continue;
        least = smallest;
        nearest = near[first + __builtin_ctz(m_bits(m_eq(error, f_set1(smallest))))];
    }
    return nearest;
}
