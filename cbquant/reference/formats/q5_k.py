"""q5_k: 5-bit codes, eight groups with 6-bit scales and mins."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, as_f32, bits, f16, k_scales_and_mins, nibble, u8
from ..base import BlockFormat


class Q5_K(BlockFormat, name="q5_k"):
    """256 elements in 176 bytes: eight groups of 32.

    =======  =====================================================================================
    bytes    field
    =======  =====================================================================================
    0..1     d, f16: the scale of the scales
    2..3     dmin, f16: the scale of the mins
    4..15    6-bit scales s and mins m, packed as `k_scales_and_mins` says
    16..47   qh: bit g of byte l is the fifth bit of element 32 g + l
    48..175  qs: 32 bytes for two groups; the low nibbles are the even group, the high ones the odd
    =======  =====================================================================================

    y = (d * s) * q - (dmin * m).
    """

    elements, nbytes = 256, 176

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        i = np.arange(256)
        group, lane = i // 32, i % 32
        s, m = k_scales_and_mins(u8(blocks, 4, 12))
        low = nibble(u8(blocks, 48, 128)[:, 32 * (group // 2) + lane], group % 2)
        fifth = bits(u8(blocks, 16, 32)[:, lane], group, 1)
        scale, offset = f16(blocks, 0) * as_f32(s), f16(blocks, 2) * as_f32(m)
        return scale[:, group] * as_f32(low + 16 * fifth) - offset[:, group]
