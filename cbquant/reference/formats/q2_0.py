"""q2_0: 2-bit codes under one scale."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, as_f32, bits, f16, u8
from ..base import BlockFormat


class Q2_0(BlockFormat, name="q2_0"):
    """64 elements in 18 bytes.

    ======  ===================================================
    bytes   field
    ======  ===================================================
    0..1    d, f16: the scale
    2..17   qs: four neighbours a byte, lowest bits first
    ======  ===================================================

    y = d * (q - 1): codes 0..3 stand for -1, 0, 1, 2.
    """

    elements, nbytes = 64, 18

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        i = np.arange(64)
        q = bits(u8(blocks, 2, 16)[:, i // 4], 2 * (i % 4), 2)
        return f16(blocks, 0) * as_f32(q - 1)
