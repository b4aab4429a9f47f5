"""iq2_s: grid rows of eight magnitudes, one sign bit an element, 4-bit scales for each sixteen."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, as_f32, bits, f16, nibble, sign, u8
from .._tables import grid
from ..base import BlockFormat


class IQ2_S(BlockFormat, name="iq2_s"):
    """256 elements in 82 bytes: sixteen groups of 16, each of two runs of 8.

    ======  =========================================================================================
    bytes   field
    ======  =========================================================================================
    0..1    d, f16: the scale of the scales
    2..33   qs: the low 8 bits of the grid row of each run
    34..65  signs: one byte a run, lowest bit first
    66..73  qh: the high 2 bits of the grid rows, four runs a byte, lowest bits first
    74..81  scales: nibble t, low ones first, is the scale s of group t
    ======  =========================================================================================

    y = (d * (s + 0.5) * 0.25) * G * sign, with G a column of the row of ``iq2_s_grid``.
    """

    elements, nbytes = 256, 82

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        i = np.arange(256)
        run = i // 8
        rows = u8(blocks, 2, 32)[:, run] + 256 * bits(u8(blocks, 66, 8)[:, run // 4], 2 * (run % 4), 2)
        s = nibble(u8(blocks, 74, 8)[:, i // 32], i // 16 % 2)
        magnitude = as_f32(grid("iq2_s_grid")[rows, i % 8])
        scale: Floats = f16(blocks, 0) * (as_f32(s) + np.float32(0.5)) * np.float32(0.25)
        return scale * magnitude * sign(u8(blocks, 34, 32)[:, run], i)
