"""q5_1: 5-bit codes under a scale and an offset."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, as_f32, bits, f16, nibbles_by_half, u8, u32
from ..base import BlockFormat


class Q5_1(BlockFormat, name="q5_1"):
    """32 elements in 24 bytes.

    ======  ===================================================================
    bytes   field
    ======  ===================================================================
    0..1    d, f16: the scale
    2..3    m, f16: the value of code 0
    4..7    qh, u32: bit i is the fifth bit of element i
    8..23   qs: the low nibbles are elements 0..15, the high nibbles 16..31
    ======  ===================================================================

    y = d * q + m (the offset is added).
    """

    elements, nbytes = 32, 24

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        fifth = bits(u32(blocks, 4), np.arange(32), 1)
        q = nibbles_by_half(u8(blocks, 8, 16)) + 16 * fifth
        return f16(blocks, 0) * as_f32(q) + f16(blocks, 2)
