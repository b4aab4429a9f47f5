"""iq4_nl: 4-bit codes into a table of sixteen, under one scale."""

from __future__ import annotations

from .._bits import Bytes, Floats, f16, nibbles_by_half, u8
from .._codebooks import IQ4
from ..base import BlockFormat


class IQ4_NL(BlockFormat, name="iq4_nl"):
    """32 elements in 18 bytes.

    ======  ===================================================================
    bytes   field
    ======  ===================================================================
    0..1    d, f16: the scale
    2..17   qs: the low nibbles are elements 0..15, the high nibbles 16..31
    ======  ===================================================================

    y = d * C[q], with C the sixteen unevenly spaced values of `IQ4`.
    """

    elements, nbytes = 32, 18

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        q = nibbles_by_half(u8(blocks, 2, 16))
        return f16(blocks, 0) * IQ4[q]
