/* For 8 elements and a number of candidate scales, one to a lane: the codes of each candidate as a row of the grid. First the
   nearest codes (0, 1, 2, which stand for 1, 3, 5); where they are not on the grid, the nearest of their neighbours. */
#pragma once
#include <float.h>

#include "../neighbours.h"

#define IQ2_VECTORS(n) (((n) + CBQ_LANES - 1) / CBQ_LANES)
enum { IQ2_MOST = 32 }; /* candidates, a multiple of all numbers of lanes */

/* What is beyond the last candidate is a copy of it. */
typedef struct {
    float numerator[IQ2_MOST], inverse[IQ2_MOST], scale[IQ2_MOST];
} __attribute__((aligned(64))) iq2_candidates;

/* For each candidate: what elements with given codes add to the distance. The first three elements together, by the six bits
   of their codes; the others one by one, 32 floats to a code. A vector of candidates is filled in when it is first asked for. */
typedef struct {
    float triple[64][IQ2_MOST], one[5][4 * IQ2_MOST];
    uint32_t filled;
} __attribute__((aligned(64))) iq2_distances;

CBQ_FN I iq2_nearest_code(F inverse, F x) {
    return i_clamp(f_nearest(f_mul(f_set1(0.5f), f_sub(f_mul(inverse, x), f_set1(1)))), 0, 2);
}

CBQ_FN void iq2_fill_distances(iq2_distances *d, int at, F scale, const float x[8], const float root[8]) {
    const F level[3] = {f_mul(scale, f_set1(1)), f_mul(scale, f_set1(3)), f_mul(scale, f_set1(5))};
    F of[8][3];
    CBQ_UNROLL_ALL
    for (int i = 0; i < 8; i++)
        for (int code = 0; code < 3; code++) {
            F difference = f_sub(level[code], f_set1(x[i]));
            of[i][code] = f_mul(f_mul(f_set1(root[i]), difference), difference);
            if (i >= 3) f_st_f32(d->one[i - 3] + code * IQ2_MOST + at, of[i][code]);
        }
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            F pair = f_add(of[0][a], of[1][b]);
            for (int c = 0; c < 3; c++) f_st_f32(d->triple[a | b << 2 | c << 4] + at, f_add(pair, of[2][c]));
        }
}

/* The nearest neighbour of a word for each candidate of one or two vectors: the first of those that are equally near. */
CBQ_FN void iq2_walk(const cbq_neighbours *t, int word, const iq2_distances *d, int at, const int vectors, I nearest[2]) {
    const uint16_t *words = t->words + t->first[word];
    F least[2];
    for (int v = 0; v < vectors; v++) least[v] = f_set1(FLT_MAX), nearest[v] = i_set1(words[0]);
    for (int k = 0; k < t->count[word]; k++) {
        const uint32_t w = words[k];
        F sum[2];
        for (int v = 0; v < vectors; v++) sum[v] = f_ld(d->triple[w & 63] + at + v * CBQ_LANES);
        CBQ_UNROLL_ALL
        for (int i = 3; i < 8; i++) {
            const float *of_code = d->one[i - 3] + at + (w >> (2 * i - 5) & 3 * IQ2_MOST); /* code * IQ2_MOST */
            for (int v = 0; v < vectors; v++) sum[v] = f_add(sum[v], f_ld(of_code + v * CBQ_LANES));
        }
        for (int v = 0; v < vectors; v++) {
            nearest[v] = i_select(m_lt(sum[v], least[v]), i_set1((int32_t)w), nearest[v]);
            least[v] = f_min(sum[v], least[v]);
        }
    }
}

/* Candidates begin .. end - 1 have the same word, which is not on the grid: replace it. */
CBQ_FN void iq2_replace_run(const cbq_neighbours *t, const iq2_distances *d, int begin, int end, int32_t *words) {
    const int word = words[begin];
    const uint32_t run = (uint32_t)((UINT64_C(1) << end) - (UINT64_C(1) << begin));
    for (int at = begin / CBQ_LANES * CBQ_LANES; at < end; at += 2 * CBQ_LANES) {
        const int vectors = end - at > CBQ_LANES ? 2 : 1;
        I nearest[2];
        if (vectors == 2) iq2_walk(t, word, d, at, 2, nearest);
        else iq2_walk(t, word, d, at, 1, nearest);
        for (int v = 0; v < vectors; v++) {
            int32_t *to = words + at + v * CBQ_LANES;
            i_st(to, i_select(m_of_bits(run >> (at + v * CBQ_LANES) & ((1u << CBQ_LANES) - 1)), nearest[v], i_ld(to)));
        }
    }
}

/* The last candidates of runs with the same word, a bit for each. words[] has room for one more. */
CBQ_FN uint32_t iq2_ends_of_runs(int n, int32_t *words) {
    uint32_t ends = 1u << (n - 1);
    words[IQ2_VECTORS(n) * CBQ_LANES] = -1;
    for (int at = 0; at < n; at += CBQ_LANES) {
        M same = m_ieq(i_ld(words + at), i_ld(words + at + 1));
        ends |= (~m_bits(same) & ((1u << CBQ_LANES) - 1)) << at;
    }
    return ends & ((1u << n) - 1);
}

/* The words of n candidates, all of them on the grid. Returns those that were not, a bit for each. Candidates that follow each
   other often have the same word: they share one walk through its neighbours. */
CBQ_FN uint32_t iq2_words(const cbq_neighbours *t, const iq2_candidates *c, int n, const float x[8], const float root[8], int32_t *words) {
    uint32_t replaced = 0;
    iq2_distances d;
    d.filled = 0;
    for (int at = 0; at < n; at += CBQ_LANES) {
        I word = i_set1(0);
        CBQ_UNROLL_ALL
        for (int i = 0; i < 8; i++) word = i_or(word, i_shl(iq2_nearest_code(f_ld(c->inverse + at), f_set1(x[i])), 2 * i));
        i_st(words + at, word);
    }
    uint32_t ends = iq2_ends_of_runs(n, words);
    for (int begin = 0, end; begin < n; begin = end, ends &= ends - 1) {
        end = __builtin_ctz(ends) + 1;
        if (t->index[words[begin]] >= 0) continue;
        for (int v = begin / CBQ_LANES; v * CBQ_LANES < end; v++)
            if (!(d.filled >> v & 1)) {
                iq2_fill_distances(&d, v * CBQ_LANES, f_ld(c->scale + v * CBQ_LANES), x, root);
                d.filled |= 1u << v;
            }
        iq2_replace_run(t, &d, begin, end, words);
        replaced |= (1u << end) - (1u << begin);
    }
    return replaced;
}
