"""q2_k: 2-bit codes, sixteen groups with 4-bit scales and mins."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, as_f32, bits, f16, nibble, u8
from ..base import BlockFormat


class Q2_K(BlockFormat, name="q2_k"):
    """256 elements in 84 bytes: sixteen groups of 16.

    ======  ===============================================================================
    bytes   field
    ======  ===============================================================================
    0..15   scales: one byte a group, its scale s in the low nibble, its min m in the high
    16..79  qs: 32 bytes for each half of 128; bits 2j of byte l are element 32 j + l of it
    80..81  d, f16: the scale of the scales
    82..83  dmin, f16: the scale of the mins
    ======  ===============================================================================

    y = (d * s) * q - (dmin * m).
    """

    elements, nbytes = 256, 84

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        i = np.arange(256)
        half, quarter, lane = i // 128, i // 32 % 4, i % 32
        packed = u8(blocks, 0, 16)[:, i // 16]
        s, m = nibble(packed, 0), nibble(packed, 1)
        q = bits(u8(blocks, 16, 64)[:, 32 * half + lane], 2 * quarter, 2)
        return (f16(blocks, 80) * as_f32(s)) * as_f32(q) - (f16(blocks, 82) * as_f32(m))
