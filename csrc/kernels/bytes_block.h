/* What products of integers see of planes: 32 signed bytes under one scale or two, made of a piece of a row at a time. No file has
   such blocks, so they are not among the formats. Their functions have the names that a format's have, and their kernels places of
   their own in tables by format. */
#pragma once
#include "kernels.h"

typedef struct { uint8_t s[8], qs[32]; } cbq_plane_bytes16_block; /* float32 scales, of 16 each */
typedef struct { uint8_t d[4], qs[32]; } cbq_plane_bytes32_block; /* one of all */

CBQ_FN W cbq_plane_bytes16_codes(const cbq_plane_bytes16_block *b, uint32_t r, uint32_t o) { (void)r; return w_ld(b->qs, o, 4); }
CBQ_FN float cbq_plane_bytes16_s(const cbq_plane_bytes16_block *b, uint32_t g) { return cbq_as_f32(cbq_u32(b->s + 4 * g, 4)); }
CBQ_FN W cbq_plane_bytes32_codes(const cbq_plane_bytes32_block *b, uint32_t r, uint32_t o) { (void)r; return w_ld(b->qs, o, 4); }
CBQ_FN float cbq_plane_bytes32_d(const cbq_plane_bytes32_block *b) { return cbq_as_f32(cbq_u32(b->d, 4)); }
