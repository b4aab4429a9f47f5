"""q1_0: a sign bit under one scale."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, bits, f16, u8
from ..base import BlockFormat


class Q1_0(BlockFormat, name="q1_0"):
    """128 elements in 18 bytes.

    ======  ====================================================
    bytes   field
    ======  ====================================================
    0..1    d, f16: the magnitude (which may itself be negative)
    2..17   qs: eight elements a byte, lowest bit first
    ======  ====================================================

    y = d where the bit is set; where it is not, d with its sign bit flipped, so that a zero bit turns 0.0
    to -0.0.
    """

    elements, nbytes = 128, 18

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        i = np.arange(128)
        d = f16(blocks, 0)
        is_set = bits(u8(blocks, 2, 16)[:, i // 8], i % 8, 1) == 1
        return np.where(is_set, d, np.negative(d))
