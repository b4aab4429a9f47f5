/* The search of iq2_xxs, iq2_xs and iq2_s. A group of 16 or 32 elements has one scale; each 8 of its codes (0, 1, 2, which
   stand for 1, 3, 5) make a row of the grid. For a number of candidate scales, one to a lane: the nearest codes, the nearest
   row for those that are not on the grid, and the sums that tell how good the candidate is. */
#pragma once
#include "../neighbours.h"
#include "nearest_row.h"
#include "superblocks.h"

#define IQ2_VECTORS(n) (((n) + CBQ_LANES - 1) / CBQ_LANES)
enum { IQ2_MOST_CANDIDATES = 32, IQ2_MOST_VECTORS = IQ2_MOST_CANDIDATES / CBQ_LANES };

/* Candidates of a group. What is beyond the last one is a copy of it. */
typedef struct {
    F inverse[IQ2_MOST_VECTORS], scale[IQ2_MOST_VECTORS];
} iq2_candidates;

/* For the candidates of one vector: what each element adds to the distance with each code; the first two together. */
typedef struct {
    F pair[16], one[8][4];
} iq2_distances;

/* (5 + 0.1 step) / largest, for `steps` steps to either side. */
CBQ_FN void iq2_make_candidates(iq2_candidates *c, int steps, float largest) {
    const int n = 2 * steps + 1;
    float numerators[IQ2_MOST_CANDIDATES] __attribute__((aligned(64)));
    for (int i = 0; i < CBQ_LANES * IQ2_VECTORS(n); i++) numerators[i] = 5 + (float)((i < n ? i : n - 1) - steps) * 0.1f;
    for (int v = 0; v < IQ2_VECTORS(n); v++) {
        c->inverse[v] = f_div(f_ld(numerators + v * CBQ_LANES), f_set1(largest));
        c->scale[v] = f_div(f_set1(1), c->inverse[v]);
    }
}

CBQ_FN I iq2_nearest_codes(F inverse, const float x[8]) {
    I word = i_set1(0);
    CBQ_UNROLL_ALL
    for (int i = 0; i < 8; i++) {
        F code = f_mul(f_set1(0.5f), f_sub(f_mul(inverse, f_set1(x[i])), f_set1(1)));
        word = i_or(word, i_shl(i_clamp(f_nearest(code), 0, 2), 2 * i));
    }
    return word;
}
CBQ_FN int iq2_nearest_codes_of_one(float inverse, const float x[8]) {
    int word = 0;
    for (int i = 0; i < 8; i++) word |= cbq_clamp(cbq_nearest(0.5f * (inverse * x[i] - 1)), 0, 2) << 2 * i;
    return word;
}

CBQ_FN void iq2_fill_distances(iq2_distances *d, F scale, const float x[8], const float root[8]) {
    const F level[3] = {f_mul(scale, f_set1(1)), f_mul(scale, f_set1(3)), f_mul(scale, f_set1(5))};
    for (int i = 0; i < 8; i++)
        for (int code = 0; code < 3; code++) {
            F difference = f_sub(level[code], f_set1(x[i]));
            d->one[i][code] = f_mul(f_mul(f_set1(root[i]), difference), difference);
        }
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) d->pair[a | b << 2] = f_add(d->one[0][a], d->one[1][b]);
}

/* The nearest neighbour of one word for each candidate of a vector: the first one of several. */
CBQ_FN I iq2_nearest_rows(const cbq_neighbours *t, int word, const iq2_distances *d) {
    const uint16_t *words = t->words + t->first[word];
    F least = f_set1(FLT_MAX);
    I nearest = i_set1(words[0]);
    for (int k = 0; k < t->count[word]; k++) {
        const uint32_t w = words[k];
        F sum = d->pair[w & 15];
        CBQ_UNROLL_ALL
        for (int i = 2; i < 8; i++) sum = f_add(sum, d->one[i][w >> 2 * i & 3]);
        nearest = i_select(m_lt(sum, least), i_set1((int32_t)w), nearest);
        least = f_min(sum, least);
    }
    return nearest;
}

/* Candidates begin..end-1 have the same word, which is not on the grid: replace it. */
CBQ_FN void iq2_replace_run(const cbq_neighbours *t, const iq2_distances *d, int begin, int end, int32_t *words) {
    const int word = words[begin];
    for (int v = begin / CBQ_LANES; v * CBQ_LANES < end; v++) {
        const uint32_t run = (uint32_t)((UINT64_C(1) << end) - (UINT64_C(1) << begin)) >> v * CBQ_LANES;
        int32_t *at = words + v * CBQ_LANES;
        i_st(at, i_select(m_of_bits(run & ((1u << CBQ_LANES) - 1)), iq2_nearest_rows(t, word, d + v), i_ld(at)));
    }
}

/* The words of n candidates for 8 elements, all of them on the grid. Returns those that were not, a bit for each.
   Candidates that follow each other often have the same word: they share one walk through its neighbours. */
CBQ_FN uint32_t iq2_words(const cbq_neighbours *t, const iq2_candidates *c, int n, const float x[8], const float root[8], int32_t *words) {
    uint32_t last_of_run = 0, replaced = 0;
    iq2_distances d[IQ2_MOST_VECTORS];
    for (int v = 0; v < IQ2_VECTORS(n); v++) i_st(words + v * CBQ_LANES, iq2_nearest_codes(c->inverse[v], x));
    words[IQ2_VECTORS(n) * CBQ_LANES] = -1;
    for (int v = 0; v < IQ2_VECTORS(n); v++) {
        M same = m_ieq(i_ld(words + v * CBQ_LANES), i_ld(words + v * CBQ_LANES + 1));
        last_of_run |= (~m_bits(same) & ((1u << CBQ_LANES) - 1)) << v * CBQ_LANES;
    }
    last_of_run = (last_of_run & ((1u << (n - 1)) - 1)) | 1u << (n - 1);
    for (int begin = 0, end; begin < n; begin = end, last_of_run &= last_of_run - 1) {
        end = __builtin_ctz(last_of_run) + 1;
        if (t->index[words[begin]] >= 0) continue;
        if (!replaced)
            for (int v = 0; v < IQ2_VECTORS(n); v++) iq2_fill_distances(d + v, c->scale[v], x, root);
        iq2_replace_run(t, d, begin, end, words);
        replaced |= (1u << end) - (1u << begin);
    }
    return replaced;
}

typedef struct {
    F qx[IQ2_MOST_VECTORS], q2[IQ2_MOST_VECTORS]; /* sums of w x q and w q q */
} iq2_sums;

CBQ_FN void iq2_add_sums(iq2_sums *s, int vectors, const int32_t *words, const float w[8], const float wx[8]) {
    const float levels[8] = {1, 3, 5, 7, 1, 3, 5, 7}; /* the next code shifts in above two bits */
    const T level = t_load8(levels);
    for (int v = 0; v < vectors; v++) {
        I word = i_ld(words + v * CBQ_LANES);
        F qx = s->qx[v], q2 = s->q2[v];
        CBQ_UNROLL_ALL
        for (int i = 0; i < 8; i++) {
            F q = t_pick8(level, i_shr(word, 2 * i));
            qx = f_add(qx, f_mul(f_set1(wx[i]), q));
            q2 = f_add(q2, f_mul(f_mul(f_set1(w[i]), q), q));
        }
        s->qx[v] = qx, s->q2[v] = q2;
    }
}

/* The best of n candidates and its scale; -1, with `scale` as it was, where none is better than nothing. */
CBQ_FN int iq2_best_candidate(const iq2_sums *s, int n, float *scale) {
    float qx[IQ2_MOST_CANDIDATES], q2[IQ2_MOST_CANDIDATES], best = 0;
    int at = -1;
    for (int v = 0; v < IQ2_VECTORS(n); v++) f_st_f32(qx + v * CBQ_LANES, s->qx[v]), f_st_f32(q2 + v * CBQ_LANES, s->q2[v]);
    for (int c = 0; c < n; c++)
        if (q2[c] > 0 && qx[c] * qx[c] > best * q2[c]) *scale = qx[c] / q2[c], best = *scale * qx[c], at = c;
    return at;
}

/* The best of 2 steps + 1 candidates for the group of `rows` rows whose elements begin at `first`: its words, which of them
   were not on the grid (a bit for each) and its scale. Where none is better than nothing, words and scale stay as they were. */
CBQ_FN uint32_t iq2_search(const cbq_neighbours *t, const weighted *b, int first, int rows, int steps, float largest, uint16_t *words,
                           float *scale) {
    const int n = 2 * steps + 1;
    iq2_candidates c;
    iq2_sums s;
    int32_t found[4][IQ2_MOST_CANDIDATES + 1];
    uint32_t replaced[4], off_grid = 0;
    iq2_make_candidates(&c, steps, largest);
    for (int v = 0; v < IQ2_VECTORS(n); v++) s.qx[v] = s.q2[v] = f_zero();
    for (int k = 0; k < rows; k++) {
        const int at = first + 8 * k;
        replaced[k] = iq2_words(t, &c, n, b->x + at, b->root + at, found[k]);
        iq2_add_sums(&s, IQ2_VECTORS(n), found[k], b->w + at, b->wx + at);
    }
    const int best = iq2_best_candidate(&s, n, scale);
    for (int k = 0; k < rows && best >= 0; k++) {
        words[k] = (uint16_t)found[k][best];
        off_grid |= (replaced[k] >> best & 1) << k;
    }
    return off_grid;
}

/* The nearest row for 8 elements at one scale. */
CBQ_FN int iq2_word_at(const cbq_neighbours *t, float scale, const float x[8], const float root[8]) {
    static const float levels[8] = {1, 3, 5, 7, 1, 3, 5, 7};
    const int word = iq2_nearest_codes_of_one(1 / scale, x);
    return t->index[word] >= 0 ? word : nearest_row(t, word, scale, levels, x, root);
}

/* The best scale for given codes, or `scale` where weights are zero. */
CBQ_FN float iq2_fitted_scale(const uint16_t *words, int rows, const float *w, const float *wx, float scale) {
    float qx = 0, q2 = 0;
    for (int i = 0; i < 8 * rows; i++) {
        float q = (float)(2 * (words[i / 8] >> 2 * (i % 8) & 3) + 1);
        qx += wx[i] * q;
        q2 += w[i] * q * q;
    }
    return q2 > 0 ? qx / q2 : scale;
}

/* Codes of n scales: code s means (2 s + 1) d. */
CBQ_FN void iq2_scale_codes(const float *scales, int n, float d, uint8_t *codes) {
    const float inverse = 1 / d;
    for (int i = 0; i < n; i++) codes[i] = (uint8_t)cbq_clamp(cbq_nearest(0.5f * (inverse * scales[i] - 1)), 0, 15);
}

/* What becomes of a superblock: groups of two or four rows. */
typedef struct {
    uint16_t rows[32];
    uint8_t signs[32];
    float scales[16], largest_scale;
} iq2_groups;

/* A negative scale becomes a positive one with the other signs. */
CBQ_FN void iq2_keep_group(const cbq_neighbours *t, const weighted *b, int group, int rows, const uint16_t *words, float scale, iq2_groups *to) {
    for (int k = 0; k < rows; k++) {
        to->rows[rows * group + k] = (uint16_t)t->index[words[k]];
        to->signs[rows * group + k] = (uint8_t)(b->signs[rows * group + k] ^ (scale < 0 ? 255 : 0));
    }
    to->scales[group] = scale < 0 ? -scale : scale;
    if (to->scales[group] > to->largest_scale) to->largest_scale = to->scales[group];
}
