"""q5_0: 5-bit codes under one scale."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, as_f32, bits, f16, nibbles_by_half, u8, u32
from ..base import BlockFormat


class Q5_0(BlockFormat, name="q5_0"):
    """32 elements in 22 bytes.

    ======  ===================================================================
    bytes   field
    ======  ===================================================================
    0..1    d, f16: the scale
    2..5    qh, u32: bit i is the fifth bit of element i
    6..21   qs: the low nibbles are elements 0..15, the high nibbles 16..31
    ======  ===================================================================

    y = d * (q - 16): codes 0..31 stand for -16..15.
    """

    elements, nbytes = 32, 22

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        fifth = bits(u32(blocks, 2), np.arange(32), 1)
        q = nibbles_by_half(u8(blocks, 6, 16)) + 16 * fifth
        return f16(blocks, 0) * as_f32(q - 16)
