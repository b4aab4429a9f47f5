"""iq2_xs: grid rows of eight magnitudes with their signs, 4-bit scales for each sixteen."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, as_f32, f16, nibble, parity_mask, sign, u8, u16
from .._tables import grid
from ..base import BlockFormat


class IQ2_XS(BlockFormat, name="iq2_xs"):
    """256 elements in 74 bytes: sixteen groups of 16, each of two runs of 8.

    ======  =========================================================================================
    bytes   field
    ======  =========================================================================================
    0..1    d, f16: the scale of the scales
    2..65   qs, u16: one a run; bits 0..8 are the grid row, bits 9..15 the 7-bit sign index
    66..73  scales: nibble t, low ones first, is the scale s of group t
    ======  =========================================================================================

    y = (d * (s + 0.5) * 0.25) * G * sign, with G a column of the row of ``iq2_xs_grid``.
    """

    elements, nbytes = 256, 74

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        i = np.arange(256)
        qs = u16(blocks, 2, 32)[:, i // 8]
        s = nibble(u8(blocks, 66, 8)[:, i // 32], i // 16 % 2)
        magnitude = as_f32(grid("iq2_xs_grid")[qs % 512, i % 8])
        scale: Floats = f16(blocks, 0) * (as_f32(s) + np.float32(0.5)) * np.float32(0.25)
        return scale * magnitude * sign(parity_mask(qs // 512), i)
