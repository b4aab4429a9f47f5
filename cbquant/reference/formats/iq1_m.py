"""iq1_m: ternary grid rows of eight, each with its own shift, 3-bit scales for each sixteen."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, Ints, as_f32, bits, nibble, u8, u16
from .._tables import grid
from ..base import BlockFormat


class IQ1_M(BlockFormat, name="iq1_m"):
    """256 elements in 56 bytes: sixteen groups of 16, each of two runs of 8.

    ======  =========================================================================================
    bytes   field
    ======  =========================================================================================
    0..31   qs: the low 8 bits of the grid row of each run
    32..47  qh: a nibble a run, low ones first; its low 3 bits are the high bits of the row, its top bit
            makes the shift -0.125, else 0.125
    48..55  scales, u16[4]: four 3-bit scales s each, lowest bits first; their top four bits, put
            together with the first word's lowest, are the f16 scale d
    ======  =========================================================================================

    y = (d * (2 s + 1)) * (G + shift), with G = -1, 0 or 1 a column of the row of ``iq1_s_grid``.
    """

    elements, nbytes = 256, 56

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        i = np.arange(256)
        run, group = i // 8, i // 16
        scales = u16(blocks, 48, 4)
        s = bits(scales[:, group // 4], 3 * (group % 4), 3)
        high = nibble(u8(blocks, 32, 16)[:, group], run % 2)
        rows = u8(blocks, 0, 32)[:, run] + 256 * (high % 8)
        shift = np.where(high >= 8, np.float32(-0.125), np.float32(0.125))
        shifted: Floats = as_f32(grid("iq1_s_grid")[rows, i % 8]) + shift
        return (cls._scale(scales) * as_f32(2 * s + 1)) * shifted

    @staticmethod
    def _scale(scales: Ints) -> Floats:
        """d ``[n, 1]`` of the four words ``[n, 4]``."""
        pattern: Ints = (bits(scales, 12, 4) << np.array([0, 4, 8, 12])).sum(axis=1, keepdims=True)
        d: Floats = pattern.astype(np.uint16).view(np.float16).astype(np.float32)
        return d
