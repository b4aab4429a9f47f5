"""tq2_0: 2-bit codes under one scale."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, as_f32, bits, f16, u8
from ..base import BlockFormat


class TQ2_0(BlockFormat, name="tq2_0"):
    """256 elements in 66 bytes.

    ======  ===============================================================================
    bytes   field
    ======  ===============================================================================
    0..63   qs: 32 bytes for each half of 128; bits 2j of byte l are element 32 j + l of it
    64..65  d, f16: the scale
    ======  ===============================================================================

    y = d * (q - 1): codes 0..2 stand for -1, 0, 1. Code 3, which no encoder writes, decodes to 2 d.
    """

    elements, nbytes = 256, 66

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        i = np.arange(256)
        half, quarter, lane = i // 128, i // 32 % 4, i % 32
        q = bits(u8(blocks, 0, 64)[:, 32 * half + lane], 2 * quarter, 2)
        return f16(blocks, 64) * as_f32(q - 1)
