/* What choosing the largest scores needs of an instruction set. The choice itself is in ops/attention/top.c. */
#pragma once
#include "../lanes/common.h"

/* Indices, from `base` on, of those of n scores that are larger than `limit`, or of all numbers where that is NaN; returns how
   many. */
static int64_t scores_above(const float *s, int64_t n, float limit, int32_t base, int32_t *to) {
    enum { AT_ONCE = 64 };
    const int any_number = limit != limit;
    const F least = f_set1(limit);
    const int32_t *begin = to;
    int64_t i = 0;
    for (; i + AT_ONCE <= n; i += AT_ONCE) {
        uint64_t found = 0;
        CBQ_UNROLL_ALL
        for (int j = 0; j < AT_ONCE; j += CBQ_LANES) {
            F v = f_ld(s + i + j);
            found |= (uint64_t)m_bits(any_number ? m_eq(v, v) : m_lt(least, v)) << j;
        }
        for (; found; found &= found - 1) *to++ = base + (int32_t)i + __builtin_ctzll(found);
    }
    for (; i < n; i++)
        if (any_number ? s[i] == s[i] : s[i] > limit) *to++ = base + (int32_t)i;
    return to - begin;
}

/* Bits of scores to integers in the same order: -0 is 0, and NaN is below all. */
CBQ_FN I order_of(F s) {
    I bits = i_of_bits(f_add(s, f_zero()));
    I negative = i_sub(i_set1(0), i_and(bits, i_set1(INT32_MAX)));
    I order = i_select(m_lt(s, f_zero()), negative, bits);
    return i_select(m_eq(s, s), order, i_set1(INT32_MIN));
}
static void scores_to_order(int32_t *v, int64_t n) {
    int64_t i = 0;
    for (; i + CBQ_LANES <= n; i += CBQ_LANES) i_st(v + i, order_of(f_of_bits(i_ld(v + i))));
    if (i == n) return;
    int32_t last[CBQ_LANES] = {0};
    memcpy(last, v + i, (size_t)(n - i) * 4);
    i_st(last, order_of(f_of_bits(i_ld(last))));
    memcpy(v + i, last, (size_t)(n - i) * 4);
}

/* How many are no less than `least`. */
static int64_t count_from(const int32_t *v, int64_t n, int32_t least) {
    const I one = i_set1(1), limit = i_set1(least);
    I below[2] = {i_set1(0), i_set1(0)};
    int64_t i = 0, total = n;
    for (; i + 2 * CBQ_LANES <= n; i += 2 * CBQ_LANES)
        for (int j = 0; j < 2; j++) below[j] = i_add(below[j], i_where(m_ilt(i_ld(v + i + j * CBQ_LANES), limit), one));
    int32_t lanes[CBQ_LANES];
    i_st(lanes, i_add(below[0], below[1]));
    for (int j = 0; j < CBQ_LANES; j++) total -= lanes[j];
    for (; i < n; i++) total -= v[i] < least;
    return total;
}
