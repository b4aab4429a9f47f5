// The blocks of plane_blocks.h, and what the codes of FP8 stand for.
#pragma once
#include "word/scalar.h"

#include "plane_blocks.h"

#define CBQ_PLANE_BLOCK(f, ...) \
    typedef struct { uint8_t codes[32], scale[4]; } cbq_##f##_block; \
    CBQ_FN W cbq_##f##_codes(const cbq_##f##_block *b, uint32_t, uint32_t o) { return w_ld(b->codes, o, 4); } \
    CBQ_FN float cbq_##f##_s(const cbq_##f##_block *b, uint32_t) { return cbq_as_f32(cbq_u32(b->scale, 4)); }
CBQ_PLANE_BLOCKS(CBQ_PLANE_BLOCK)

enum { E4M3 = 1, E5M2 };

// Byte i of w. (OCP 8-bit Floating Point 1.0.)
// E5M2 is the upper byte of a binary16. Of E4M3 the sign and the seven other bits go where float32 has its sign, the lower bits of its
// exponent and the upper ones of its mantissa: that is the value times 2^-120, also where it is subnormal. 7F is NaN.
template <int KIND> CBQ_FN float float8(uint32_t w, int i) {
    uint32_t code = w >> 8 * i & 255u;
    if (KIND == E5M2) return cbq_f16_to_f32(code << 8);
    if ((code & 127u) == 127u) return cbq_as_f32(0x7fc00000u);
    return cbq_as_f32((code & 128u) << 24 | (code & 127u) << 20) * 0x1p120f;
}
