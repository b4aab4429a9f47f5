/* What every C and CUDA file stands on: function and table qualifiers, loads at any alignment, bit casts,
   and the few byte-parallel helpers that several formats share. No Python and no instruction set in here. */
#pragma once
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define CBQ_FN static __device__ __forceinline__
#define CBQ_TABLE static __device__ const
#else
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "cbquant needs a little-endian machine: block bytes are little-endian"
#endif
#define CBQ_FN static inline __attribute__((always_inline, unused))
#define CBQ_TABLE static const __attribute__((unused))
#endif

#if !defined(__CUDACC__)
/* Asks for the cache lines of memory that is soon to be read. The address may lie past the end of anything. */
CBQ_FN void cbq_prefetch(uintptr_t address, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const void *)(address + (uintptr_t)i), 0, 3);
}
#endif

#if defined(__cplusplus)
#define CBQ_STATIC_ASSERT static_assert
#else
#define CBQ_STATIC_ASSERT _Static_assert
#endif

/* Before a loop of a few, known turns: registers, not arrays. In portable intrinsics that would be megabytes of code. */
#if defined(CBQ_EMULATE)
#define CBQ_UNROLL_ALL _Pragma("GCC unroll 1")
#else
#define CBQ_UNROLL_ALL _Pragma("GCC unroll 16")
#endif

/* Float vectors in a word: see word/README.md. */
#define CBQ_VECTORS (CBQ_W / CBQ_LANES)

/* The same byte four times: masks and constants for words of four codes. */
#define CBQ_B(x) (0x01010101u * (uint32_t)(x))

/* Added to signed codes of so many bits, it makes them unsigned. */
#define CBQ_BIAS(bits) (1 << ((bits) - 1))

CBQ_FN float cbq_as_f32(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
CBQ_FN uint32_t cbq_as_u32(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }

/* Little-endian loads. `align` is what the block's size and the field's place promise when the buffer itself is
   aligned: on a GPU it decides the width of the load (nvcc ignores an assumed alignment through memcpy), on a CPU
   nothing, because there a block may begin anywhere. */
#if defined(__CUDACC__)
CBQ_FN uint32_t cbq_u16(const uint8_t *p, int align) {
    if (align >= 2) return *(const uint16_t *)p;
    return p[0] | (uint32_t)p[1] << 8;
}
CBQ_FN uint32_t cbq_u32(const uint8_t *p, int align) {
    if (align >= 4) return *(const uint32_t *)p;
    return cbq_u16(p, align) | cbq_u16(p + 2, align) << 16;
}
#else
CBQ_FN uint32_t cbq_u16(const uint8_t *p, int align) { uint16_t v; (void)align; memcpy(&v, p, 2); return v; }
CBQ_FN uint32_t cbq_u32(const uint8_t *p, int align) { uint32_t v; (void)align; memcpy(&v, p, 4); return v; }
#endif

/* binary16 to float32, exact for every bit pattern. */
CBQ_FN float cbq_f16_to_f32(uint32_t h) {
#if defined(__CUDACC__)
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((uint16_t)h));
    return f;
#else
    uint32_t sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24 is exact */
        float f = (float)mantissa * 0x1p-24f;
        return cbq_as_f32(cbq_as_u32(f) | sign);
    }
    return cbq_as_f32(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13);
#endif
}

/* ---- four bytes in a uint32_t, each on its own ---- */

CBQ_FN uint32_t cbq_add4(uint32_t a, uint32_t b) {
    return ((a & CBQ_B(127)) + (b & CBQ_B(127))) ^ ((a ^ b) & CBQ_B(128));
}
/* a - b for codes below 128 */
CBQ_FN uint32_t cbq_sub4(uint32_t a, uint32_t b) { return ((a | CBQ_B(128)) - b) ^ CBQ_B(128); }

/* Four fields of the low bits of x, the first at bit 0, one to a byte: 2 bits each, then 3, 4 and 7. A word file that has
   an instruction for the longer ones (CBQ_DEPOSIT) defines it before this file is read. */
CBQ_FN uint32_t cbq_spread_pairs(uint32_t x) {
    return (x & 3u) | (x & 12u) << 6 | (x & 48u) << 12 | (x & 192u) << 18;
}
#if defined(CBQ_DEPOSIT)
CBQ_FN uint32_t cbq_spread_octals(uint32_t x) { return CBQ_DEPOSIT(x, CBQ_B(7)); }
CBQ_FN uint32_t cbq_spread_nibbles(uint32_t x) { return CBQ_DEPOSIT(x, CBQ_B(15)); }
CBQ_FN uint32_t cbq_spread_septets(uint32_t x) { return CBQ_DEPOSIT(x, CBQ_B(127)); }
#else
CBQ_FN uint32_t cbq_spread_octals(uint32_t x) {
    return (x & 7u) | (x & 0x38u) << 5 | (x & 0x1c0u) << 10 | (x & 0xe00u) << 15;
}
CBQ_FN uint32_t cbq_spread_nibbles(uint32_t x) {
    return (x & 0xfu) | (x & 0xf0u) << 4 | (x & 0xf00u) << 8 | (x & 0xf000u) << 12;
}
CBQ_FN uint32_t cbq_spread_septets(uint32_t x) {
    return (x & 0x7fu) | (x << 1 & 0x7f00u) | (x << 2 & 0x7f0000u) | (x << 3 & 0x7f000000u);
}
#endif

/* The second and fourth byte of each of two dwords. */
CBQ_FN uint32_t cbq_odd_bytes(uint32_t low, uint32_t high) {
#if defined(CBQ_EXTRACT)
    return (uint32_t)CBQ_EXTRACT((uint64_t)high << 32 | low, 0xff00ff00ff00ff00u);
#else
    return (low >> 8 & 0xffu) | (low >> 16 & 0xff00u) | (high << 8 & 0xff0000u) | (high & 0xff000000u);
#endif
}

/* Four sign fields of 7 bits, one to a byte, to the 32-bit sign mask of a run of 32: bit 7 of each byte is the parity of the
   other seven. */
CBQ_FN uint32_t cbq_signs7(uint32_t s) {
    uint32_t parity = s ^ s >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return s | (parity & CBQ_B(1)) << 7;
}

/* a * 3^n modulo 256 in each byte */
CBQ_FN uint32_t cbq_pow3(uint32_t a, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) a = cbq_add4(a, cbq_add4(a, a));
    return a;
}

/* 1.5 * 2^23: adding it to a float leaves the nearest integer in the mantissa, ties to even. */
#define CBQ_ROUNDER 12582912.0f

/* ---- rounding a float32 to 16 bits, nearest, ties to even ---- */

/* What decode can write. The last is bf16 of floats whose NaNs have zeros in their lower half, as the default one (0x7fc00000): adding
   half a unit keeps that a NaN, so the vector code need not look for it. */
enum { CBQ_F32, CBQ_F16, CBQ_BF16, CBQ_BF16_QUIET };

#if defined(__CUDACC__)
CBQ_FN uint16_t cbq_f32_to_bf16(float f) { uint16_t h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
CBQ_FN uint16_t cbq_f32_to_f16(float f) { uint16_t h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
#else
/* NaN is kept (quietly): rounding could carry its payload away. */
CBQ_FN uint16_t cbq_f32_to_bf16(float f) {
    uint32_t u = cbq_as_u32(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
CBQ_FN uint16_t cbq_f32_to_f16(float f) {
    uint32_t u = cbq_as_u32(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* 2^16 and up: infinity */
    if (a < 0x38800000u) { /* below 2^-14: a subnormal, in units of 2^-24; adding 2^-1 * 2^24 units rounds there */
        float r = cbq_as_f32(a) + 0.5f;
        return (uint16_t)(sign | (cbq_as_u32(r) - 0x3f000000u));
    }
    return (uint16_t)(sign | (a - 0x38000000u + 0xfffu + (a >> 13 & 1)) >> 13); /* a carry makes 65520 infinite */
}
#endif
