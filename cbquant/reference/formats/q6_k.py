"""q6_k: 6-bit codes, sixteen groups with 8-bit scales."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, as_f32, bits, f16, i8, nibble, u8
from ..base import BlockFormat


class Q6_K(BlockFormat, name="q6_k"):
    """256 elements in 210 bytes: sixteen groups of 16. In each half of 128, element 32 j + l has

    ========  =======================================================================================
    bytes     field
    ========  =======================================================================================
    0..127    ql: 64 bytes a half; its low 4 bits are a nibble of byte 32 (j mod 2) + l, low for j < 2
    128..191  qh: 32 bytes a half; its high 2 bits are bits 2j of byte l
    192..207  scales, i8: one a group
    208..209  d, f16: the scale of the scales
    ========  =======================================================================================

    y = (d * s) * (q - 32): scales are -128..127, codes stand for -32..31.
    """

    elements, nbytes = 256, 210

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        i = np.arange(256)
        half, quarter, lane = i // 128, i // 32 % 4, i % 32
        s = i8(blocks, 192, 16)[:, i // 16]
        low = nibble(u8(blocks, 0, 128)[:, 64 * half + 32 * (quarter % 2) + lane], quarter // 2)
        high = bits(u8(blocks, 128, 64)[:, 32 * half + lane], 2 * quarter, 2)
        q = low + 16 * high
        return (f16(blocks, 208) * as_f32(s)) * as_f32(q - 32)
