// The blocks of plane_blocks.h, and what the codes of FP8 stand for.
#pragma once
#include "word/scalar.h"

#include "formats/shared/e2m1_values.h"
#include "plane_blocks.h"
#include "planes/tables.h"

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

#define CBQ_SCALE_OF_32(f) \
    CBQ_FN float cbq_##f##_s(const cbq_##f##_block *b, uint32_t) { return cbq_as_f32(cbq_u32(b->scale, 4)); }
#define CBQ_BYTE_CODES(f) \
    CBQ_FN W cbq_##f##_codes(const cbq_##f##_block *b, uint32_t, uint32_t o) { return w_ld(b->codes, o, 4); } CBQ_SCALE_OF_32(f)
#define CBQ_NIBBLES(f) \
    CBQ_FN W cbq_##f##_codes(const cbq_##f##_block *b, uint32_t, uint32_t o) { return w_nib16(b->codes, o, 4); } CBQ_SCALE_OF_32(f)
// The tensor's number is the block's end: tensor_scale in decode.cuh.
#define CBQ_NVFP4(f) \
    CBQ_FN W cbq_##f##_codes(const cbq_##f##_block *b, uint32_t r, uint32_t o) { return w_nib8(b->codes + 16 * r, o, 4); } \
    CBQ_FN float cbq_##f##_s(const cbq_##f##_block *b, uint32_t g) { return float8<E4M3>(cbq_u32(b->scales, 4), (int)g); }

CBQ_BYTE_CODES(e4m3_codes) CBQ_BYTE_CODES(e5m2_codes) CBQ_BYTE_CODES(int8_codes)
CBQ_NIBBLES(nf4_codes) CBQ_NIBBLES(fp4_codes)
CBQ_NVFP4(nvfp4_times) CBQ_NVFP4(nvfp4_over)
