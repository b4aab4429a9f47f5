/* The lane vocabulary in plain C: four lanes in vectors that every target of gcc and clang has. README.md says what the
   names mean. */
#pragma once
#include "pieces.h"
#include <math.h>

typedef int32_t M __attribute__((vector_size(16))); /* -1 where it holds, else 0 */

CBQ_FN F f_sub(F a, F b) { return a - b; }
CBQ_FN F f_div(F a, F b) { return a / b; }
CBQ_FN F f_sqrt(F a) { return (F){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])}; }
CBQ_FN F f_of_bits(I a) { return (F)a; }
CBQ_FN I i_of_bits(F a) { return (I)a; }
CBQ_FN F f_abs(F a) { return (F)((I)a & 0x7fffffff); }
CBQ_FN F f_neg(F a) { return (F)((I)a ^ INT32_MIN); }
CBQ_FN int32_t cbq_to_i(float a) { return a >= -0x1p31f && a < 0x1p31f ? (int32_t)a : INT32_MIN; }
CBQ_FN I f_to_i(F a) { return (I){cbq_to_i(a[0]), cbq_to_i(a[1]), cbq_to_i(a[2]), cbq_to_i(a[3])}; }
CBQ_FN F f_approx_inverse(F a) { return 1.0f / a; }

CBQ_FN M m_lt(F a, F b) { return a < b; }
CBQ_FN M m_le(F a, F b) { return a <= b; }
CBQ_FN M m_eq(F a, F b) { return a == b; }
CBQ_FN M m_ne(F a, F b) { return a != b; }
CBQ_FN M m_not_lt(F a, F b) { return ~(a < b); }
CBQ_FN M m_and(M a, M b) { return a & b; }
CBQ_FN M m_or(M a, M b) { return a | b; }
CBQ_FN M m_andnot(M a, M b) { return a & ~b; }
CBQ_FN uint32_t m_bits(M m) { return (m[0] & 1u) | (m[1] & 2u) | (m[2] & 4u) | (m[3] & 8u); }
CBQ_FN M m_of_bits(uint32_t bits) { return (I){bits & 1, bits & 2, bits & 4, bits & 8} != 0; }
CBQ_FN F f_select(M m, F yes, F no) { return (F)((m & (I)yes) | (~m & (I)no)); }
CBQ_FN F f_where(M m, F a) { return (F)(m & (I)a); }
CBQ_FN F f_min(F a, F b) { return f_select(a < b, a, b); }
CBQ_FN F f_max(F a, F b) { return f_select(b < a, a, b); }
CBQ_FN F f_swap_pairs(F a) { return (F){a[1], a[0], a[3], a[2]}; }

CBQ_FN I i_sub(I a, I b) { return a - b; }
CBQ_FN I i_and(I a, I b) { return a & b; }
CBQ_FN I i_or(I a, I b) { return a | b; }
CBQ_FN I i_shl(I a, int n) { return a << n; }
CBQ_FN I i_shr(I a, int n) { return (I)((uint32_t __attribute__((vector_size(16))))a >> n); }
CBQ_FN M m_ieq(I a, I b) { return a == b; }
CBQ_FN I i_select(M m, I yes, I no) { return (m & yes) | (~m & no); }
CBQ_FN I i_where(M m, I a) { return m & a; }
CBQ_FN I i_min(I a, I b) { return i_select(a < b, a, b); }
CBQ_FN I i_max(I a, I b) { return i_select(a > b, a, b); }
CBQ_FN void i_st(int32_t *to, I a) { memcpy(to, &a, 16); }
CBQ_FN I i_ld(const int32_t *p) { I a; memcpy(&a, p, 16); return a; }
CBQ_FN M m_ilt(I a, I b) { return a < b; }
CBQ_FN void i_st_u8(uint8_t *to, I a) { for (int i = 0; i < 4; i++) to[i] = (uint8_t)a[i]; }
CBQ_FN void i_st_32_u8(uint8_t *to, const I a[8]) { for (int i = 0; i < 8; i++) i_st_u8(to + 4 * i, a[i]); }
CBQ_FN uint32_t u8_bits(const uint8_t *p, int bit) {
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++) { /* the product has the bit of byte k at 56 + k, and no two of its terms meet */
        uint64_t v;
        memcpy(&v, p + 8 * i, 8);
        bits |= (uint32_t)((v >> bit & 0x0101010101010101u) * 0x0102040810204080u >> 56) << 8 * i;
    }
    return bits;
}
CBQ_FN I i_ld_u16(const uint16_t *p) { return (I){p[0], p[1], p[2], p[3]}; }
CBQ_FN I i_ld_codes(const uint8_t *p, int bits) {
    uint32_t v = (uint32_t)cbq_few_bytes(p, bits / 2);
    return (I){(int32_t)v, (int32_t)(v >> bits), (int32_t)(v >> 2 * bits), (int32_t)(v >> 3 * bits)};
}
CBQ_FN void i_st_codes(uint8_t *to, I a, int bits) {
    int32_t v = a[0] | a[1] << bits | a[2] << 2 * bits | a[3] << 3 * bits;
    memcpy(to, &v, (size_t)bits / 2);
}
CBQ_FN float cbq_f64_odd(const uint8_t *p) {
    uint64_t u;
    double d;
    memcpy(&u, p, 8);
    u = (u | ((u & CBQ_BEYOND_F32) + CBQ_BEYOND_F32)) & ~CBQ_BEYOND_F32;
    memcpy(&d, &u, 8);
    return (float)d;
}
CBQ_FN F f_ld_f64_odd(const uint8_t *p) { return (F){cbq_f64_odd(p), cbq_f64_odd(p + 8), cbq_f64_odd(p + 16), cbq_f64_odd(p + 24)}; }

typedef struct { float at[16]; } T;
CBQ_FN T t_load8(const float *p) { T t; memcpy(t.at, p, 32); return t; }
CBQ_FN T t_load16(const float *p) { T t; memcpy(t.at, p, 64); return t; }
CBQ_FN F t_pick8(T t, I i) { return (F){t.at[i[0] & 7], t.at[i[1] & 7], t.at[i[2] & 7], t.at[i[3] & 7]}; }
CBQ_FN F t_pick16(T t, I i) { return (F){t.at[i[0] & 15], t.at[i[1] & 15], t.at[i[2] & 15], t.at[i[3] & 15]}; }

/* Four squares of 4 x 4 would do; this is the plain way. */
CBQ_FN void f_transpose(const float *from, int64_t stride, float *to, int64_t next) {
    for (int k = 0; k < 8; k++)
        for (int lane = 0; lane < 4; lane++) to[k * next + lane] = from[lane * stride + k];
}

CBQ_FN float f_largest(F a) {
    float low = a[0] < a[1] ? a[1] : a[0], high = a[2] < a[3] ? a[3] : a[2];
    return low < high ? high : low;
}
CBQ_FN F f_sum_each(const F v[4]) { return (F){f_sum(v[0]), f_sum(v[1]), f_sum(v[2]), f_sum(v[3])}; }
