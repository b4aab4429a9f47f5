/* The lane vocabulary of NEON: four lanes. README.md says what the names mean. */
#pragma once
#include "pieces.h"

typedef uint32x4_t M; /* all bits of a lane where it holds */

CBQ_FN F f_sub(F a, F b) { return vsubq_f32(a, b); }
CBQ_FN F f_div(F a, F b) { return vdivq_f32(a, b); }
CBQ_FN F f_sqrt(F a) { return vsqrtq_f32(a); }
CBQ_FN F f_of_bits(I a) { return vreinterpretq_f32_s32(a); }
CBQ_FN I i_of_bits(F a) { return vreinterpretq_s32_f32(a); }
CBQ_FN F f_abs(F a) { return vabsq_f32(a); }
CBQ_FN F f_neg(F a) { return vnegq_f32(a); }
CBQ_FN I f_to_i(F a) {
    uint32x4_t fits = vandq_u32(vcgeq_f32(a, vdupq_n_f32(-0x1p31f)), vcltq_f32(a, vdupq_n_f32(0x1p31f)));
    return vbslq_s32(fits, vcvtq_s32_f32(a), vdupq_n_s32(INT32_MIN));
}
/* One Newton step: NEON's own estimate has 8 bits only. */
CBQ_FN F f_approx_inverse(F a) { F r = vrecpeq_f32(a); return vmulq_f32(r, vrecpsq_f32(a, r)); }

CBQ_FN M m_lt(F a, F b) { return vcltq_f32(a, b); }
CBQ_FN M m_le(F a, F b) { return vcleq_f32(a, b); }
CBQ_FN M m_eq(F a, F b) { return vceqq_f32(a, b); }
CBQ_FN M m_ne(F a, F b) { return vmvnq_u32(vceqq_f32(a, b)); }
CBQ_FN M m_not_lt(F a, F b) { return vmvnq_u32(vcltq_f32(a, b)); }
CBQ_FN M m_and(M a, M b) { return vandq_u32(a, b); }
CBQ_FN M m_or(M a, M b) { return vorrq_u32(a, b); }
CBQ_FN M m_andnot(M a, M b) { return vbicq_u32(a, b); }
CBQ_FN uint32_t m_bits(M m) {
    const uint32x4_t bit = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(m, bit));
}
CBQ_FN M m_of_bits(uint32_t bits) {
    const uint32x4_t bit = {1, 2, 4, 8};
    return vtstq_u32(vdupq_n_u32(bits), bit);
}
CBQ_FN F f_select(M m, F yes, F no) { return vbslq_f32(m, yes, no); }
CBQ_FN F f_where(M m, F a) { return vreinterpretq_f32_u32(vandq_u32(m, vreinterpretq_u32_f32(a))); }
/* As x86 has it: the second operand where either is NaN. */
CBQ_FN F f_min(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
CBQ_FN F f_max(F a, F b) { return vbslq_f32(vcltq_f32(b, a), a, b); }
CBQ_FN F f_swap_pairs(F a) { return vrev64q_f32(a); }

CBQ_FN I i_sub(I a, I b) { return vsubq_s32(a, b); }
CBQ_FN I i_or(I a, I b) { return vorrq_s32(a, b); }
CBQ_FN I i_shl(I a, int n) { return vshlq_s32(a, vdupq_n_s32(n)); }
CBQ_FN I i_shr(I a, int n) { return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-n))); }
CBQ_FN M m_ieq(I a, I b) { return vceqq_s32(a, b); }
CBQ_FN I i_select(M m, I yes, I no) { return vbslq_s32(m, yes, no); }
CBQ_FN I i_where(M m, I a) { return vandq_s32(vreinterpretq_s32_u32(m), a); }
CBQ_FN I i_min(I a, I b) { return vminq_s32(a, b); }
CBQ_FN I i_max(I a, I b) { return vmaxq_s32(a, b); }
CBQ_FN void i_st(int32_t *to, I a) { vst1q_s32(to, a); }
CBQ_FN I i_ld(const int32_t *p) { return vld1q_s32(p); }
CBQ_FN M m_ilt(I a, I b) { return vcltq_s32(a, b); }
CBQ_FN void i_st_u8(uint8_t *to, I a) {
    uint16x4_t half = vmovn_u32(vreinterpretq_u32_s32(a));
    uint8x8_t bytes = vmovn_u16(vcombine_u16(half, half));
    uint32_t four = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
    memcpy(to, &four, 4);
}
CBQ_FN void i_st_32_u8(uint8_t *to, const I a[8]) {
    for (int i = 0; i < 2; i++, a += 4) {
        uint16x8_t low = vcombine_u16(vmovn_u32(vreinterpretq_u32_s32(a[0])), vmovn_u32(vreinterpretq_u32_s32(a[1])));
        uint16x8_t high = vcombine_u16(vmovn_u32(vreinterpretq_u32_s32(a[2])), vmovn_u32(vreinterpretq_u32_s32(a[3])));
        vst1q_u8(to + 16 * i, vcombine_u8(vmovn_u16(low), vmovn_u16(high)));
    }
}
CBQ_FN uint32_t u8_bits(const uint8_t *p, int bit) {
    const uint8x8_t place = {1, 2, 4, 8, 16, 32, 64, 128};
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++) bits |= (uint32_t)vaddv_u8(vand_u8(vtst_u8(vld1_u8(p + 8 * i), vdup_n_u8((uint8_t)(1 << bit))), place)) << 8 * i;
    return bits;
}
CBQ_FN I i_ld_u16(const uint16_t *p) { return vreinterpretq_s32_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8((const uint8_t *)p)))); }
CBQ_FN I i_ld_codes(const uint8_t *p, int bits) {
    uint32_t v = (uint32_t)cbq_few_bytes(p, bits / 2);
    const int32x4_t right = {0, -bits, -2 * bits, -3 * bits};
    return vreinterpretq_s32_u32(vshlq_u32(vdupq_n_u32(v), right));
}
CBQ_FN void i_st_codes(uint8_t *to, I a, int bits) {
    const int32x4_t left = {0, bits, 2 * bits, 3 * bits};
    uint32_t v = vaddvq_u32(vshlq_u32(vreinterpretq_u32_s32(a), left));
    memcpy(to, &v, (size_t)bits / 2);
}
CBQ_FN float32x2_t f_ld2_f64_odd(const uint8_t *p) {
    const uint64x2_t beyond = vdupq_n_u64(CBQ_BEYOND_F32);
    uint64x2_t u = vreinterpretq_u64_u8(vld1q_u8(p));
    u = vorrq_u64(u, vaddq_u64(vandq_u64(u, beyond), beyond));
    return vcvt_f32_f64(vreinterpretq_f64_u64(vbicq_u64(u, beyond)));
}
CBQ_FN F f_ld_f64_odd(const uint8_t *p) { return vcombine_f32(f_ld2_f64_odd(p), f_ld2_f64_odd(p + 16)); }

typedef struct { float at[16]; } T;
CBQ_FN T t_load8(const float *p) { T t; memcpy(t.at, p, 32); return t; }
CBQ_FN T t_load16(const float *p) { T t; memcpy(t.at, p, 64); return t; }
/* Bytes 4 i .. 4 i + 3 of the table */
CBQ_FN uint8x16_t t_bytes(I i, int mask) {
    uint32x4_t first = vshlq_n_u32(vandq_u32(vreinterpretq_u32_s32(i), vdupq_n_u32((uint32_t)mask)), 2);
    return vreinterpretq_u8_u32(vaddq_u32(vmulq_n_u32(first, 0x01010101u), vdupq_n_u32(0x03020100u)));
}
CBQ_FN F t_pick8(T t, I i) {
    uint8x16x2_t rows = {{vld1q_u8((const uint8_t *)t.at), vld1q_u8((const uint8_t *)(t.at + 4))}};
    return vreinterpretq_f32_u8(vqtbl2q_u8(rows, t_bytes(i, 7)));
}
CBQ_FN F t_pick16(T t, I i) {
    uint8x16x4_t rows = {{vld1q_u8((const uint8_t *)t.at), vld1q_u8((const uint8_t *)(t.at + 4)), vld1q_u8((const uint8_t *)(t.at + 8)),
                          vld1q_u8((const uint8_t *)(t.at + 12))}};
    return vreinterpretq_f32_u8(vqtbl4q_u8(rows, t_bytes(i, 15)));
}

CBQ_FN void f_transpose(const float *from, int64_t stride, float *to, int64_t next) {
    for (int half = 0; half < 2; half++, from += 4, to += 4 * next) {
        float32x4_t a = vld1q_f32(from), b = vld1q_f32(from + stride), c = vld1q_f32(from + 2 * stride), d = vld1q_f32(from + 3 * stride);
        float32x4x2_t ac = vzipq_f32(a, c), bd = vzipq_f32(b, d);
        float32x4x2_t low = vzipq_f32(ac.val[0], bd.val[0]), high = vzipq_f32(ac.val[1], bd.val[1]);
        vst1q_f32(to, low.val[0]);
        vst1q_f32(to + next, low.val[1]);
        vst1q_f32(to + 2 * next, high.val[0]);
        vst1q_f32(to + 3 * next, high.val[1]);
    }
}

CBQ_FN float f_largest(F a) { return vmaxvq_f32(a); }
CBQ_FN F f_sum_each(const F v[4]) { return vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3])); }
