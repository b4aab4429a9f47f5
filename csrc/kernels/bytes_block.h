/* What products of integers see of planes: 32 signed bytes and a scale for each 16, made of a piece of a row at a time. No file
   has such blocks, so they are not among the formats. Their functions have the names that a format's have, for kernels/. */
#pragma once
#include "../base.h"

typedef struct { uint8_t s[8], qs[32]; } cbq_plane_bytes_block;

CBQ_FN W cbq_plane_bytes_codes(const cbq_plane_bytes_block *b, uint32_t r, uint32_t o) { (void)r; return w_ld(b->qs, o, 4); }
CBQ_FN float cbq_plane_bytes_s(const cbq_plane_bytes_block *b, uint32_t g) { return cbq_as_f32(cbq_u32(b->s + 4 * g, 4)); }
