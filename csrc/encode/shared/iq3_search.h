/* The scale and the grid rows of a group of 32, for iq3_xxs and iq3_s. Trial scales go in lanes. In each trial every four
   elements are rounded to a code word, which goes to the nearest row where it is not on the grid; the trial whose sums
   promise the least error wins.

   Elements grow in proportion over the trials, so that the same code word comes several times in sequence, and all
   these trials share a list of neighbours. */
#pragma once
#include "iq3_near.h"

enum { IQ3_QUADS = 8 };
/* With this many times more neighbours than trials, trials are taken one by one. Measured on AVX2 and AVX-512: 2 to 4 are alike. */
#define IQ3_ONE_BY_ONE 3

/* Of one format. */
typedef struct {
    const cbq_neighbours *near;
    int trials, padded; /* how many, and as whole vectors: at most 32 */
    float largest[IQ3_MOST_TRIALS]; /* what the trial scale makes of the largest element: 15, and steps of 0.2 on either side */
} iq3_plan;

typedef struct {
    float x[32], w[32]; /* without signs; weights */
    float root[32], wx[32];
    float largest;
} iq3_group;

typedef struct {
    float scale;
    int words[IQ3_QUADS];
    uint32_t off; /* bit q: quad q of the trial was not on the grid */
} iq3_fit;

/* All trials of a group, for each four elements. */
typedef struct {
    float scaled[IQ3_CODES][IQ3_ROOM]; /* 2 code + 1 times the scale of each trial */
    int32_t words[IQ3_QUADS][IQ3_ROOM], rows[IQ3_QUADS][IQ3_ROOM]; /* code words: rounded, and those on the grid */
    uint32_t off[IQ3_QUADS]; /* bit t: in trial t these are not the same */
} iq3_trials;

CBQ_FN iq3_plan iq3_make_plan(const cbq_neighbours *near, int trials) {
    iq3_plan p = {.near = near, .trials = trials, .padded = (trials + CBQ_LANES - 1) / CBQ_LANES * CBQ_LANES};
    for (int t = 0; t < IQ3_MOST_TRIALS; t++) p.largest[t] = 15 + (float)((t < trials ? t : trials - 1) - trials / 2) * 0.2f;
    return p;
}

/* 2 code + 1 is nearest to x times the inverse of the scale. */
CBQ_FN I iq3_round(F inverse, F x) {
    return i_clamp(f_nearest(f_mul(f_set1(0.5f), f_sub(f_mul(inverse, x), f_set1(1.0f)))), 0, IQ3_CODES - 1);
}

CBQ_FN void iq3_round_trials(const iq3_plan *p, const iq3_group *g, iq3_trials *all) {
    for (int t = 0; t < p->padded; t += CBQ_LANES) {
        const F inverse = f_div(f_ld(p->largest + t), f_set1(g->largest));
        const F scale = f_div(f_set1(1.0f), inverse);
        for (int c = 0; c < IQ3_CODES; c++) f_st_f32(all->scaled[c] + t, f_mul(scale, f_set1(iq3_odd[c])));
        for (int q = 0; q < IQ3_QUADS; q++) {
            const float *x = g->x + 4 * q;
            I word = iq3_round(inverse, f_set1(x[0]));
            CBQ_UNROLL_ALL
            for (int i = 1; i < 4; i++) word = i_or(word, i_shl(iq3_round(inverse, f_set1(x[i])), 3 * i));
            i_st(all->words[q] + t, word);
        }
    }
    for (int c = 0; c < IQ3_CODES; c++) f_st_f32(all->scaled[c] + p->padded, f_zero());
    for (int q = 0; q < IQ3_QUADS; q++) all->words[q][p->padded] = -1;
}

/* The trials after which the code word changes, as bits. */
CBQ_FN uint32_t iq3_ends(const int32_t *words, int n) {
    uint32_t same = 0;
    for (int t = 0; t < n; t += CBQ_LANES) same |= m_bits(m_ieq(i_ld(words + t), i_ld(words + t + 1))) << t;
    return ~same & (uint32_t)((1ull << n) - 1);
}

/* Trials begin .. end - 1 have one code word. Vectors reach beyond them: what they write there is written again. */
CBQ_FN void iq3_settle_run(const cbq_neighbours *near, const float *x, const float *root, iq3_trials *all, int q, int begin, int end) {
    const int word = all->words[q][begin];
    int32_t *rows = all->rows[q];
    if (near->index[word] >= 0) {
        for (int t = begin; t < end; t += CBQ_LANES) i_st(rows + t, i_set1(word));
        return;
    }
    all->off[q] |= (uint32_t)((1ull << end) - (1ull << begin));
    if ((end - begin) * IQ3_ONE_BY_ONE < near->count[word])
        for (int t = begin; t < end; t++) rows[t] = iq3_near_scale(near, word, x, root, all->scaled[0][t]);
    else
        for (int t = begin; t < end; t += CBQ_LANES) i_st(rows + t, iq3_near_trials(near, word, x, root, all->scaled[0] + t));
}

CBQ_FN void iq3_settle_quad(const iq3_plan *p, const iq3_group *g, iq3_trials *all, int q) {
    int begin = 0;
    all->off[q] = 0;
    for (uint32_t ends = iq3_ends(all->words[q], p->padded); ends; ends &= ends - 1) {
        const int end = __builtin_ctz(ends) + 1;
        iq3_settle_run(p->near, g->x + 4 * q, g->root + 4 * q, all, q, begin, end);
        begin = end;
    }
}

/* The sums of w x q and w q^2 over the group, for each trial. */
CBQ_FN void iq3_sum_trials(const iq3_plan *p, const iq3_group *g, const iq3_trials *all, float *sums_x, float *sums_q) {
    const T odd = t_load8(iq3_odd);
    for (int t = 0; t < p->padded; t += CBQ_LANES) {
        F sum_x = f_zero(), sum_q = f_zero();
        for (int quad = 0; quad < IQ3_QUADS; quad++) {
            const I word = i_ld(all->rows[quad] + t);
            const float *w = g->w + 4 * quad, *wx = g->wx + 4 * quad;
            CBQ_UNROLL_ALL
            for (int i = 0; i < 4; i++) {
                F q = t_pick8(odd, i_shr(word, 3 * i));
                sum_x = f_add(sum_x, f_mul(f_set1(wx[i]), q));
                sum_q = f_add(sum_q, f_mul(f_mul(f_set1(w[i]), q), q));
            }
        }
        f_st_f32(sums_x + t, sum_x), f_st_f32(sums_q + t, sum_q);
    }
}

/* The best trial; `none` where there is none. */
CBQ_FN iq3_fit iq3_best_trial(const iq3_plan *p, const iq3_group *g, iq3_fit none) {
    iq3_trials all;
    iq3_fit fit = none;
    float sums_x[IQ3_MOST_TRIALS], sums_q[IQ3_MOST_TRIALS], best = 0;
    int winner = -1;
    iq3_round_trials(p, g, &all);
    for (int q = 0; q < IQ3_QUADS; q++) iq3_settle_quad(p, g, &all, q);
    iq3_sum_trials(p, g, &all, sums_x, sums_q);
    for (int t = 0; t < p->trials; t++) {
        if (!(sums_q[t] > 0 && sums_x[t] * sums_x[t] > best * sums_q[t])) continue;
        fit.scale = sums_x[t] / sums_q[t];
        best = fit.scale * sums_x[t];
        winner = t;
    }
    if (winner < 0) return fit;
    fit.off = 0;
    for (int q = 0; q < IQ3_QUADS; q++) {
        fit.words[q] = all.rows[q][winner];
        fit.off |= (all.off[q] >> winner & 1) << q;
    }
    return fit;
}

/* Rounds the quads in question again, with the scale that the trial came to, and makes a new scale of the sums. */
CBQ_FN void iq3_refit(const iq3_plan *p, const iq3_group *g, uint32_t quads, iq3_fit *fit) {
    int32_t codes[32];
    const float inverse = 1.0f / fit->scale;
    for (int i = 0; i < 32; i += CBQ_LANES) i_st(codes + i, iq3_round(f_set1(inverse), f_ld(g->x + i)));
    for (; quads; quads &= quads - 1) {
        const int q = __builtin_ctz(quads);
        const int32_t *c = codes + 4 * q;
        const int word = c[0] | c[1] << 3 | c[2] << 6 | c[3] << 9;
        const int on_grid = p->near->index[word] >= 0;
        fit->words[q] = on_grid ? word : iq3_near_scale(p->near, word, g->x + 4 * q, g->root + 4 * q, fit->scale);
    }
    float sum_x = 0, sum_q = 0;
    for (int i = 0; i < 32; i++) {
        float q = iq3_odd[iq3_code_of(fit->words[i / 4], i % 4)];
        sum_x += g->wx[i] * q;
        sum_q += g->w[i] * q * q;
    }
    if (sum_q > 0) fit->scale = sum_x / sum_q;
}
