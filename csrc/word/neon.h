/* The word vocabulary, NEON (Advanced SIMD of AArch64): a word is 16 codes. word/README.md says what the names mean. */
#pragma once
#include "../base.h"
#include <arm_neon.h>

#define CBQ_W 16
#define CBQ_UNROLL CBQ_UNROLL_ALL /* runs of a block: shifts and fields become constants */
typedef uint32_t W __attribute__((vector_size(16)));

CBQ_FN W w_from_u8(uint8x16_t v) { W w; memcpy(&w, &v, 16); return w; }
CBQ_FN uint8x16_t w_to_u8(W w) { uint8x16_t v; memcpy(&v, &w, 16); return v; }

CBQ_FN float w_f16_bits(uint32_t bits) { return cbq_f16_to_f32(bits); }
CBQ_FN float w_f16(const uint8_t *p) { return w_f16_bits(cbq_u16(p, 2)); }
CBQ_FN float w_f16_of2(const uint8_t *p, int i) { return w_f16(p + 2 * i); }

CBQ_FN W w_ld(const uint8_t *p, uint32_t o, int align) { (void)align; return w_from_u8(vld1q_u8(p + o)); }
CBQ_FN W w_ld16(const uint8_t *p, uint32_t o, int align) { (void)o; (void)align; return w_from_u8(vld1q_u8(p)); }
CBQ_FN W w_nib16(const uint8_t *p, uint32_t o, int align) {
    W v = w_ld(p, 0, align);
    return (o ? v >> 4 : v) & CBQ_B(15);
}
/* Eight bytes of the half run at o: low nibbles, then high ones. */
CBQ_FN W w_nib8(const uint8_t *p, uint32_t o, int align) {
    uint8x8_t q = vld1_u8(p + o / 2);
    (void)align;
    return w_from_u8(vcombine_u8(vand_u8(q, vdup_n_u8(15)), vshr_n_u8(q, 4)));
}
/* Each byte to two: shifted by a nibble, the high one is in the second. */
CBQ_FN W w_pairs(const uint8_t *p) {
    uint16x8_t wide = vmovl_u8(vld1_u8(p));
    return w_from_u8(vreinterpretq_u8_u16(vorrq_u16(wide, vshlq_n_u16(wide, 4)))) & CBQ_B(15);
}
/* Shifts are of dwords: what crosses from a neighbour is masked off, because the field stays inside its byte. */
CBQ_FN W w_bits(W a, uint32_t pos, int n, uint32_t to) {
    return (pos >= to ? a >> (pos - to) : a << (to - pos)) & CBQ_B(((1u << n) - 1) << to);
}

/* 0xff where bit i of the low half of the mask is 1 */
CBQ_FN W w_mask16(uint32_t mask) {
    const uint8x16_t bit_of = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    return w_from_u8(vtstq_u8(vcombine_u8(vdup_n_u8((uint8_t)mask), vdup_n_u8((uint8_t)(mask >> 8))), bit_of));
}
CBQ_FN W w_bit(uint32_t mask, uint32_t o) { return w_mask16(mask >> o) & CBQ_B(1); }
CBQ_FN W w_with_bit(W a, uint32_t mask, uint32_t o, int to) { return a | w_bit(mask, o) << to; }
CBQ_FN W w_neg(W a, uint32_t mask, uint32_t o) {
    W m = w_mask16(mask >> o);
    return w_from_u8(vsubq_u8(w_to_u8(a ^ m), w_to_u8(m)));
}

CBQ_FN W w_add(W a, W b) { return w_from_u8(vaddq_u8(w_to_u8(a), w_to_u8(b))); }
CBQ_FN W w_addall(W a, int c) { return w_from_u8(vaddq_u8(w_to_u8(a), vdupq_n_u8((uint8_t)c))); }
CBQ_FN W w_suball(W a, int c) { return w_from_u8(vsubq_u8(w_to_u8(a), vdupq_n_u8((uint8_t)c))); }
CBQ_FN W w_cat16(W lo, W hi, uint32_t o) { return o < 16 ? lo : hi; }

CBQ_FN W w_lookup(W a, const uint8_t table[16]) { return w_from_u8(vqtbl1q_u8(vld1q_u8(table), w_to_u8(a))); }
CBQ_FN void w_store(W a, uint8_t *p) { vst1q_u8(p, w_to_u8(a)); }

CBQ_FN W w_pow3(W a, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) a = w_add(a, w_add(a, a));
    return a;
}
/* 3a / 256 is (a >= 86) + (a >= 171) */
CBQ_FN W w_digit3(W a) {
    uint8x16_t v = w_to_u8(a), one = vcgeq_u8(v, vdupq_n_u8(86)), two = vcgeq_u8(v, vdupq_n_u8(171));
    return w_from_u8(vsubq_u8(vdupq_n_u8(0), vaddq_u8(one, two)));
}

/* `expr` for the pieces of the half run at o; statement expressions, because `e` must be a variable of the expression. */
#define W_U64(e, o, expr) ({ uint64_t w_t[2]; _Pragma("GCC unroll 2") for (uint32_t w_i = 0; w_i < 2; w_i++) { uint32_t e = (o) / 8 + w_i; w_t[w_i] = (expr); } W w_v; memcpy(&w_v, w_t, 16); w_v; })
#define W_U32(e, o, expr) ({ uint32_t w_t[4]; _Pragma("GCC unroll 4") for (uint32_t w_i = 0; w_i < 4; w_i++) { uint32_t e = (o) / 4 + w_i; w_t[w_i] = (expr); } W w_v; memcpy(&w_v, w_t, 16); w_v; })

#include "row_loads.h"

/* ---- the float side ---- */
#define CBQ_LANES 4
#define CBQ_CODE_UNIT 1.0f
#define CBQ_LINEAR_BY_TABLE 1
#define CBQ_CODES_FIRST 0
typedef float32x4_t F;

#define CBQ_TILE_M 4 /* 24 sums, 4 + 1 operands, of 32 registers */
#define CBQ_TILE_N 6
#define CBQ_DOT_X_BYTES 0

CBQ_FN F f_set1(float x) { return vdupq_n_f32(x); }
CBQ_FN F f_mul(F a, F b) { return vmulq_f32(a, b); }
CBQ_FN F f_add(F a, F b) { return vaddq_f32(a, b); }
CBQ_FN F f_fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
CBQ_FN F f_fnma(F a, F b, F c) { return vfmsq_f32(c, a, b); }
CBQ_FN void f_st_f32(float *y, F v) { vst1q_f32(y, v); }
CBQ_FN float f_sum(F v) { return vaddvq_f32(v); }
CBQ_FN void f_sum4(const F v[4], float *y) { vst1q_f32(y, vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3]))); }
CBQ_FN void w_to_f(W w, F f[4]) {
    int8x16_t q = vreinterpretq_s8_u8(w_to_u8(w));
    int16x8_t low = vmovl_s8(vget_low_s8(q)), high = vmovl_s8(vget_high_s8(q));
    f[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
    f[1] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(low)));
    f[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
    f[3] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)));
}
/* The table as bf16: bytes 2 and 3 of each float; one look-up gives the low bytes, one the high bytes. */
CBQ_FN void w_table_to_f(W w, const float *table, F f[4]) {
    uint8x16x4_t bytes = vld4q_u8((const uint8_t *)table);
    uint8x16_t low = vqtbl1q_u8(bytes.val[2], w_to_u8(w)), high = vqtbl1q_u8(bytes.val[3], w_to_u8(w));
    uint8x16x2_t bf16 = vzipq_u8(low, high);
    for (int k = 0; k < 2; k++) {
        uint16x8_t v = vreinterpretq_u16_u8(bf16.val[k]);
        f[2 * k] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16));
        f[2 * k + 1] = vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(v), 16));
    }
}
CBQ_FN void f_groups(float d, const uint32_t *s4, int n, float *out) {
    for (int g = 0; g < n; g += 4) {
        int16x8_t wide = vmovl_s8(vcreate_s8((uint64_t)s4[g / 4]));
        vst1q_f32(out + g, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), d));
    }
}

/* ---- panels ---- */
#define CBQ_PANEL_VECTORS 2 /* a panel is 8 rows */
typedef int32x4_t I;
CBQ_FN I i_set1(int32_t x) { return vdupq_n_s32(x); }
CBQ_FN I i_and(I a, I b) { return vandq_s32(a, b); }
CBQ_FN I i_shift_right8(I a) { return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), 8)); }
CBQ_FN I i_add(I a, I b) { return vaddq_s32(a, b); }
CBQ_FN I i_load(const uint8_t *p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
CBQ_FN F i_to_f(I a) { return vcvtq_f32_s32(a); }

/* ---- words of rows, side by side: one fills a vector ---- */
CBQ_FN I p_join(const W codes[1]) { return vreinterpretq_s32_u8(w_to_u8(codes[0])); }
CBQ_FN I p_lookup(const W codes[1], const uint8_t table[16]) { return vreinterpretq_s32_u8(w_to_u8(w_lookup(codes[0], table))); }
CBQ_FN I p_same(const void *p) { return i_load(p); }
#define CBQ_SCALES_IN_MEMORY 1
CBQ_FN F f_pick_scales(const float *s, int n, int at, int group) { (void)n; return vld1q_dup_f32(s + at / group); }
CBQ_FN F f_per_row(const float x[1]) { return vdupq_n_f32(x[0]); }
CBQ_FN void f_sum_rows(F v, float y[1]) { y[0] = f_sum(v); }

/* 32 bytes of 4 rows to 8 vectors of a dword a row */
CBQ_FN void p_transpose(const uint8_t *from, int64_t stride, uint8_t *to) {
    const int next = 16 * CBQ_PANEL_VECTORS;
    for (int half = 0; half < 2; half++, from += 16, to += 4 * next) {
        uint32x4_t a = vreinterpretq_u32_u8(vld1q_u8(from)), b = vreinterpretq_u32_u8(vld1q_u8(from + stride));
        uint32x4_t c = vreinterpretq_u32_u8(vld1q_u8(from + 2 * stride)), d = vreinterpretq_u32_u8(vld1q_u8(from + 3 * stride));
        uint32x4x2_t ac = vzipq_u32(a, c), bd = vzipq_u32(b, d);
        uint32x4x2_t low = vzipq_u32(ac.val[0], bd.val[0]), high = vzipq_u32(ac.val[1], bd.val[1]);
        vst1q_u8(to, vreinterpretq_u8_u32(low.val[0]));
        vst1q_u8(to + next, vreinterpretq_u8_u32(low.val[1]));
        vst1q_u8(to + 2 * next, vreinterpretq_u8_u32(high.val[0]));
        vst1q_u8(to + 3 * next, vreinterpretq_u8_u32(high.val[1]));
    }
}

CBQ_FN F f_ld_f32(const uint8_t *p) { return vreinterpretq_f32_u8(vld1q_u8(p)); }
CBQ_FN F f_ld_f16(const uint8_t *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
CBQ_FN F f_ld_bf16(const uint8_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16)); }
CBQ_FN F f_ld_i8(const uint8_t *p) {
    uint32_t four = cbq_u32(p, 1);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8((uint64_t)four)))));
}
CBQ_FN F f_ld_i16(const uint8_t *p) { return vcvtq_f32_s32(vmovl_s16(vreinterpret_s16_u8(vld1_u8(p)))); }
CBQ_FN F f_ld_i32(const uint8_t *p) { return vcvtq_f32_s32(vreinterpretq_s32_u8(vld1q_u8(p))); }
CBQ_FN F f_ld_f64(const uint8_t *p) {
    float64x2_t low = vreinterpretq_f64_u8(vld1q_u8(p)), high = vreinterpretq_f64_u8(vld1q_u8(p + 16));
    return vcombine_f32(vcvt_f32_f64(low), vcvt_f32_f64(high));
}

/* u + 0x7fff + (bit 16), with NaN kept apart: bfcvt flushes nothing but is not in every core */
CBQ_FN uint16x4_t f_to_bf16(F f, int quiet) {
    uint32x4_t u = vreinterpretq_u32_f32(f), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    if (quiet) return vshrn_n_u32(rounded, 16);
    return vshrn_n_u32(vbslq_u32(vceqq_f32(f, f), rounded, vorrq_u32(u, vdupq_n_u32(0x400000))), 16);
}
CBQ_FN void f_store(uint8_t *y, const F f[4], int dtype) {
    for (int i = 0; i < 4; i++) {
        if (dtype == CBQ_F32) vst1q_u8(y + 16 * i, vreinterpretq_u8_f32(f[i]));
        else if (dtype == CBQ_F16) vst1_u8(y + 8 * i, vreinterpret_u8_f16(vcvt_f16_f32(f[i])));
        else vst1_u8(y + 8 * i, vreinterpret_u8_u16(f_to_bf16(f[i], dtype == CBQ_BF16_QUIET)));
    }
}
CBQ_FN void f_stream(uint8_t *y, F f) { vst1q_u8(y, vreinterpretq_u8_f32(f)); }
CBQ_FN void f_store_past(uint8_t *y, const F f[4], int dtype) { f_store(y, f, dtype); }
#define CBQ_STREAM_THREADS 0 /* these are ordinary stores */
#define CBQ_STREAM_FROM 0
