"""q4_0: 4-bit codes under one scale."""

from __future__ import annotations

from .._bits import Bytes, Floats, as_f32, f16, nibbles_by_half, u8
from ..base import BlockFormat


class Q4_0(BlockFormat, name="q4_0"):
    """32 elements in 18 bytes.

    ======  ===================================================================
    bytes   field
    ======  ===================================================================
    0..1    d, f16: the scale
    2..17   qs: the low nibbles are elements 0..15, the high nibbles 16..31
    ======  ===================================================================

    y = d * (q - 8): codes 0..15 stand for -8..7.
    """

    elements, nbytes = 32, 18

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        q = nibbles_by_half(u8(blocks, 2, 16))
        return f16(blocks, 0) * as_f32(q - 8)
