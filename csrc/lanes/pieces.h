/* What every file of this folder needs for its loads and stores. */
#pragma once
#include "../base.h"

/* The bits of binary16 that a sign, so many bits of exponent and the mantissa fill. */
CBQ_FN short cbq_f16_mask(int exponent) { return (short)(0x8000 | ((1 << (10 + exponent)) - 1)); }

/* Mantissa bits of a float64 that float32 has no room for. Where any is set, adding them all carries into the bit above. */
#define CBQ_BEYOND_F32 UINT64_C(0x1fffffff)

/* 2, 3, 4, 6 or 8 bytes to the lowest of a word: not by a copy, after which a load of the whole would wait for its parts. */
CBQ_FN uint64_t cbq_few_bytes(const uint8_t *p, int n) {
    if (n == 2) return cbq_u16(p, 1);
    if (n == 3) return cbq_u16(p, 1) | p[2] << 16;
    if (n == 4) return cbq_u32(p, 1);
    return cbq_u32(p, 1) | (uint64_t)(n == 6 ? cbq_u16(p + 4, 1) : cbq_u32(p + 4, 1)) << 32;
}
