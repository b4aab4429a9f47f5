"""q4_1: 4-bit codes under a scale and an offset."""

from __future__ import annotations

from .._bits import Bytes, Floats, as_f32, f16, nibbles_by_half, u8
from ..base import BlockFormat


class Q4_1(BlockFormat, name="q4_1"):
    """32 elements in 20 bytes.

    ======  ===================================================================
    bytes   field
    ======  ===================================================================
    0..1    d, f16: the scale
    2..3    m, f16: the value of code 0
    4..19   qs: the low nibbles are elements 0..15, the high nibbles 16..31
    ======  ===================================================================

    y = d * q + m. The offset is added here, where the K formats subtract it.
    """

    elements, nbytes = 32, 20

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        q = nibbles_by_half(u8(blocks, 4, 16))
        return f16(blocks, 0) * as_f32(q) + f16(blocks, 2)
