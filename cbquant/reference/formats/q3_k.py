"""q3_k: 3-bit codes, sixteen groups with 6-bit scales."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, Ints, as_f32, bits, f16, nibble, u8
from ..base import BlockFormat


class Q3_K(BlockFormat, name="q3_k"):
    """256 elements in 110 bytes: sixteen groups of 16.

    ========  =====================================================================================
    bytes     field
    ========  =====================================================================================
    0..31     hmask: bit g of byte l is the third bit of element 32 g + l
    32..95    qs: 32 bytes for each half of 128; bits 2j of byte l are element 32 j + l of it
    96..107   scales: the nibbles of bytes 0..7 are the low 4 bits of s[0..7] and of s[8..15]; bits
              2k of bytes 8..11 are the high 2 bits of s[4 k .. 4 k + 3]
    108..109  d, f16: the scale of the scales
    ========  =====================================================================================

    y = (d * (s - 32)) * (q - 4): scales stand for -32..31, codes for -4..3.
    """

    elements, nbytes = 256, 110

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        i = np.arange(256)
        half, quarter, lane = i // 128, i // 32 % 4, i % 32
        s = cls._scales(u8(blocks, 96, 12))[:, i // 16]
        low = bits(u8(blocks, 32, 64)[:, 32 * half + lane], 2 * quarter, 2)
        third = bits(u8(blocks, 0, 32)[:, lane], i // 32, 1)
        q = low + 4 * third
        return (f16(blocks, 108) * as_f32(s - 32)) * as_f32(q - 4)

    @staticmethod
    def _scales(packed: Ints) -> Ints:
        """The sixteen 6-bit scales ``[n, 16]`` of the 12 bytes ``[n, 12]``."""
        group = np.arange(16)
        low = nibble(packed[:, group % 8], group // 8)
        high = bits(packed[:, 8 + group % 4], 2 * (group // 4), 2)
        return low + 16 * high
