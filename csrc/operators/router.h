/* Scores of experts, and the choice of the largest. */
#pragma once
#include <math.h>

#include "keys.h"
#include "pieces.h"
#include "../lanes/exp.h"
#include "../lanes/log.h"

CBQ_FN void score_lanes(const float *logits, const float *bias, float *unbiased, float *biased, int scoring) {
    F x = f_ld(logits), s = scoring == CBQ_SIGMOID ? f_sigmoid(x) : f_sqrt_softplus(x);
    f_st_f32(unbiased, s);
    f_st_f32(biased, f_add(s, f_ld(bias)));
}
CBQ_FN void score_row(const float *logits, const float *bias, float *unbiased, float *biased, int64_t n, int scoring) {
    int64_t i = 0;
    for (; i + CBQ_LANES <= n; i += CBQ_LANES) score_lanes(logits + i, bias + i, unbiased + i, biased + i, scoring);
    if (i == n) return;
    float last[4][CBQ_LANES] = {{0}};
    const size_t rest = (size_t)(n - i) * 4;
    memcpy(last[0], logits + i, rest), memcpy(last[1], bias + i, rest);
    score_lanes(last[0], last[1], last[2], last[3], scoring);
    memcpy(unbiased + i, last[2], rest), memcpy(biased + i, last[3], rest);
}
static void score(const float *logits, const float *bias, float *unbiased, float *biased, int64_t n, int scoring) {
    if (scoring == CBQ_SIGMOID) score_row(logits, bias, unbiased, biased, n, CBQ_SIGMOID);
    else score_row(logits, bias, unbiased, biased, n, CBQ_SQRTSOFTPLUS);
}

/* Into its place among the `count` largest so far, of which there is room for k; the smallest of them is lost. */
CBQ_FN int64_t choice_insert(uint64_t *keys, int64_t count, int64_t k, uint64_t key) {
    int64_t i = count < k ? count : k - 1;
    for (; i > 0 && keys[i - 1] < key; i--) keys[i] = keys[i - 1];
    keys[i] = key;
    return count < k ? count + 1 : k;
}
/* A score that at least k of them reach, where that is cheap to know: the k-th of the largest of 16 columns, found by counting, for
   branches that nobody can predict would take longer. NaN counts as -inf, and what it makes a column forget only lowers the limit. */
enum { CHOICE_COLUMNS = 16, CHOICE_VECTORS = CHOICE_COLUMNS / CBQ_LANES };
CBQ_FN float choice_limit(const float *scores, int64_t n, int64_t k) {
    const F lowest = f_set1(-INFINITY);
    F largest[CHOICE_VECTORS];
    if (k > CHOICE_COLUMNS || n < 2 * CHOICE_COLUMNS) return -INFINITY;
    for (int v = 0; v < CHOICE_VECTORS; v++) largest[v] = lowest;
    for (int64_t i = 0; i + CHOICE_COLUMNS <= n; i += CHOICE_COLUMNS)
        for (int v = 0; v < CHOICE_VECTORS; v++) largest[v] = f_max(f_ld(scores + i + v * CBQ_LANES), largest[v]);
    float columns[CHOICE_COLUMNS], limit = INFINITY;
    for (int v = 0; v < CHOICE_VECTORS; v++) {
        largest[v] = f_select(m_eq(largest[v], largest[v]), largest[v], lowest);
        f_st_f32(columns + v * CBQ_LANES, largest[v]);
    }
    for (int c = 0; c < CHOICE_COLUMNS; c++) {
        int above = 0;
        for (int v = 0; v < CHOICE_VECTORS; v++) above += __builtin_popcount(m_bits(m_lt(f_set1(columns[c]), largest[v])));
        float own = above < k ? columns[c] : INFINITY;
        limit = own < limit ? own : limit;
    }
    return limit;
}

/* Most vectors hold nothing that reaches the k-th largest so far. What compares with nothing (NaN) is looked at. */
static void choose(const float *scores, int64_t n, int64_t k, uint64_t *keys) {
    F limit = f_set1(choice_limit(scores, n, k));
    int64_t count = 0, i = 0;
    for (; i + CBQ_LANES <= n; i += CBQ_LANES) {
        uint32_t found = ~m_bits(m_lt(f_ld(scores + i), limit)) & (uint32_t)((1u << CBQ_LANES) - 1);
        if (!found) continue;
        for (; found; found &= found - 1) {
            int64_t place = i + __builtin_ctz(found);
            uint64_t key = choice_key(scores[place], place);
            if (count < k || key > keys[k - 1]) count = choice_insert(keys, count, k, key);
        }
        if (count == k) limit = f_max(limit, f_set1(key_score(keys[k - 1])));
    }
    for (; i < n; i++) {
        uint64_t key = choice_key(scores[i], i);
        if (count < k || key > keys[k - 1]) count = choice_insert(keys, count, k, key);
    }
}
