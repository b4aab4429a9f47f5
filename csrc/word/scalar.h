/* The word vocabulary, scalar C and CUDA: a word is four codes in a uint32_t, the first in the lowest byte.
   word/README.md says what each name means; the other files of this folder say the same in vectors. */
#pragma once
#include "../base.h"

#define CBQ_W 4 /* codes in a word */
#define CBQ_UNROLL _Pragma("GCC unroll 1") /* unrolled, 4 codes at a time would be a megabyte of code */
typedef uint32_t W;

CBQ_FN float w_f16_bits(uint32_t bits) { return cbq_f16_to_f32(bits); }
CBQ_FN float w_f16(const uint8_t *p) { return w_f16_bits(cbq_u16(p, 2)); }
CBQ_FN float w_f16_of2(const uint8_t *p, int i) { return w_f16(p + 2 * i); }

CBQ_FN W w_ld(const uint8_t *p, uint32_t o, int align) { return cbq_u32(p + o, align); }
CBQ_FN W w_ld16(const uint8_t *p, uint32_t o, int align) { return cbq_u32(p + (o & 15), align); }
CBQ_FN W w_nib16(const uint8_t *p, uint32_t o, int align) {
    return cbq_u32(p + (o & 15), align) >> (o < 16 ? 0 : 4) & CBQ_B(15);
}
CBQ_FN W w_nib8(const uint8_t *p, uint32_t o, int align) {
    return cbq_u32(p + (o >> 4) * 8 + (o & 4), align) >> (o & 8 ? 4 : 0) & CBQ_B(15);
}
CBQ_FN W w_pairs(const uint8_t *p) { return cbq_spread_nibbles(cbq_u16(p, 1)); }
CBQ_FN W w_bits(W a, uint32_t pos, int n, uint32_t to) { return (a >> pos & CBQ_B((1u << n) - 1)) << to; }

/* Four bits of a mask, one to a byte: the product puts bit i at bit 8i. */
CBQ_FN W w_bit(uint32_t mask, uint32_t o) { return (mask >> o & 15) * 0x00204081u & CBQ_B(1); }
CBQ_FN W w_with_bit(W a, uint32_t mask, uint32_t o, int to) { return a | w_bit(mask, o) << to; }
/* -a where the mask says so: complement and add one; codes are 1..127 there, so no carry leaves a byte */
CBQ_FN W w_neg(W a, uint32_t mask, uint32_t o) {
    W m = w_bit(mask, o);
    return (a ^ m * 255u) + m;
}

CBQ_FN W w_add(W a, W b) { return cbq_add4(a, b); }
CBQ_FN W w_addall(W a, int c) { return cbq_add4(a, CBQ_B(c & 255)); }
CBQ_FN W w_suball(W a, int c) { return cbq_sub4(a, CBQ_B(c)); }
CBQ_FN W w_cat16(W lo, W hi, uint32_t o) { return o < 16 ? lo : hi; }

CBQ_FN W w_lookup(W a, const uint8_t table[16]) {
    return table[a & 15] | (W)table[a >> 8 & 15] << 8 | (W)table[a >> 16 & 15] << 16 | (W)table[a >> 24 & 15] << 24;
}
CBQ_FN void w_store(W a, uint8_t *p) { memcpy(p, &a, 4); }

CBQ_FN W w_pow3(W a, uint32_t n) { return cbq_pow3(a, n); }
/* 3a / 256 in each byte: 0, 1 or 2; even and odd bytes apart, so that the product has room */
CBQ_FN W w_digit3(W a) {
    return ((a & 0x00ff00ffu) * 3 >> 8 & 0x00ff00ffu) | ((a >> 8 & 0x00ff00ffu) * 3 & 0xff00ff00u);
}

/* Words from pieces: `expr` is evaluated for the 8-byte (4-byte) piece number e that holds code o of the run.
   Statement expressions, because `e` must be a variable of the format's own expression. */
#define W_U64(e, o, expr) ({ uint32_t e = (o) >> 3; (uint32_t)((uint64_t)(expr) >> (8 * ((o) & 4))); })
#define W_U32(e, o, expr) ({ uint32_t e = (o) >> 2; (uint32_t)(expr); })

#include "row_loads.h"

#if !defined(__CUDACC__)
/* ---- the float side: vectors of 4 floats, which every target of gcc and clang has ---- */
#define CBQ_LANES 4
#define CBQ_CODE_UNIT 1.0f
#define CBQ_LINEAR_BY_TABLE 0
#define CBQ_CODES_FIRST 0
typedef float F __attribute__((vector_size(16)));

#define CBQ_TILE_M 2
#define CBQ_TILE_N 4
#define CBQ_DOT_X_BYTES 0

CBQ_FN F f_set1(float x) { return (F){x, x, x, x}; }
CBQ_FN F f_mul(F a, F b) { return a * b; }
CBQ_FN F f_add(F a, F b) { return a + b; }
CBQ_FN F f_fma(F a, F b, F c) { return a * b + c; } /* rounded twice: not every machine has the instruction */
CBQ_FN F f_fnma(F a, F b, F c) { return c - a * b; }
CBQ_FN void f_st_f32(float *y, F v) { memcpy(y, &v, 16); }
CBQ_FN F f_ld_f32(const uint8_t *p) { F f; memcpy(&f, p, 16); return f; }
CBQ_FN float f_sum(F v) { return (v[0] + v[2]) + (v[1] + v[3]); }
CBQ_FN void f_sum4(const F v[4], float *y) {
    for (int i = 0; i < 4; i++) y[i] = f_sum(v[i]);
}
CBQ_FN void w_to_f(W w, F f[1]) {
    f[0] = (F){(float)(int8_t)w, (float)(int8_t)(w >> 8), (float)(int8_t)(w >> 16), (float)(int8_t)(w >> 24)};
}
CBQ_FN void w_table_to_f(W w, const float *table, F f[1]) {
    f[0] = (F){table[w & 15], table[w >> 8 & 15], table[w >> 16 & 15], table[w >> 24 & 15]};
}
CBQ_FN void f_groups(float d, const uint32_t *s4, int n, float *out) {
    for (int g = 0; g < n; g++) out[g] = d * (float)(int8_t)(s4[g / 4] >> 8 * (g % 4));
}
/* ---- panels ---- */
#define CBQ_PANEL_VECTORS 1 /* a panel is 4 rows */
typedef int32_t I __attribute__((vector_size(16)));
CBQ_FN I i_set1(int32_t x) { return (I){x, x, x, x}; }
CBQ_FN I i_add(I a, I b) { return a + b; }
CBQ_FN I i_load(const uint8_t *p) { I v; memcpy(&v, p, 16); return v; }
CBQ_FN F i_to_f(I a) { return (F){(float)a[0], (float)a[1], (float)a[2], (float)a[3]}; }

/* ---- words of rows, side by side: four ---- */
CBQ_FN I p_join(const W codes[4]) { return (I){(int32_t)codes[0], (int32_t)codes[1], (int32_t)codes[2], (int32_t)codes[3]}; }
CBQ_FN I p_lookup(const W codes[4], const uint8_t table[16]) {
    W values[4];
    for (int r = 0; r < 4; r++) values[r] = w_lookup(codes[r], table);
    return p_join(values);
}
CBQ_FN I p_same(const void *p) { return i_set1((int32_t)cbq_u32((const uint8_t *)p, 1)); }
#define CBQ_SCALES_IN_MEMORY 0
CBQ_FN F f_pick_scales(const float *s, int n, int at, int group) {
    (void)n;
    int g = at / group;
    return (F){s[g], s[16 + g], s[32 + g], s[48 + g]};
}
CBQ_FN F f_per_row(const float x[4]) { return f_ld_f32((const uint8_t *)x); }
CBQ_FN void f_sum_rows(F v, float y[4]) { f_st_f32(y, v); }

/* 32 bytes of 4 rows to 8 vectors of a dword a row */
CBQ_FN void p_transpose(const uint8_t *from, int64_t stride, uint8_t *to) {
    for (int k = 0; k < 8; k++)
        for (int row = 0; row < 4; row++) memcpy(to + 16 * k + 4 * row, from + row * stride + 4 * k, 4);
}

CBQ_FN F f_ld_f16(const uint8_t *p) { return (F){w_f16(p), w_f16(p + 2), w_f16(p + 4), w_f16(p + 6)}; }
CBQ_FN F f_ld_bf16(const uint8_t *p) {
    return (F){cbq_as_f32(cbq_u16(p, 2) << 16), cbq_as_f32(cbq_u16(p + 2, 2) << 16),
               cbq_as_f32(cbq_u16(p + 4, 2) << 16), cbq_as_f32(cbq_u16(p + 6, 2) << 16)};
}
CBQ_FN F f_ld_i8(const uint8_t *p) { return (F){(float)(int8_t)p[0], (float)(int8_t)p[1], (float)(int8_t)p[2], (float)(int8_t)p[3]}; }
CBQ_FN F f_ld_i16(const uint8_t *p) { int16_t v[4]; memcpy(v, p, 8); return (F){(float)v[0], (float)v[1], (float)v[2], (float)v[3]}; }
CBQ_FN F f_ld_i32(const uint8_t *p) { int32_t v[4]; memcpy(v, p, 16); return (F){(float)v[0], (float)v[1], (float)v[2], (float)v[3]}; }
CBQ_FN F f_ld_f64(const uint8_t *p) { double v[4]; memcpy(v, p, 32); return (F){(float)v[0], (float)v[1], (float)v[2], (float)v[3]}; }
CBQ_FN void f_store(uint8_t *y, const F f[1], int dtype) {
    if (dtype == CBQ_F32) { memcpy(y, f, 16); return; }
    uint16_t h[4];
    for (int i = 0; i < 4; i++) h[i] = dtype == CBQ_F16 ? cbq_f32_to_f16(f[0][i]) : cbq_f32_to_bf16(f[0][i]);
    memcpy(y, h, 8);
}
CBQ_FN void f_stream(uint8_t *y, F f) { memcpy(y, &f, 16); }
CBQ_FN void f_store_past(uint8_t *y, const F f[1], int dtype) { f_store(y, f, dtype); }
#define CBQ_STREAM_THREADS 0 /* these are ordinary stores */
#define CBQ_STREAM_FROM 0
#endif
