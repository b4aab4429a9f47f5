"""iq3_xxs: grid rows of four magnitudes, signs of even parity, 4-bit scales."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, as_f32, bits, f16, parity_mask, sign, u8, u32
from .._tables import grid
from ..base import BlockFormat


class IQ3_XXS(BlockFormat, name="iq3_xxs"):
    """256 elements in 98 bytes: eight groups of 32.

    ======  =========================================================================================
    bytes   field
    ======  =========================================================================================
    0..1    d, f16: the scale of the scales
    2..65   qs: the grid row of each four elements
    66..97  one u32 a group: the 7-bit sign index of its run k of 8 from bit 7 k on, and the scale s in
            bits 28..31
    ======  =========================================================================================

    y = (d * (s + 0.5) * 0.5) * G * sign, with G a column of the row of ``iq3_xxs_grid``.
    """

    elements, nbytes = 256, 98

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        i = np.arange(256)
        word = u32(blocks, 66, 8)[:, i // 32]
        mask = parity_mask(bits(word, 7 * (i // 8 % 4), 7))
        s = bits(word, 28, 4)
        magnitude = as_f32(grid("iq3_xxs_grid")[u8(blocks, 2, 64)[:, i // 4], i % 4])
        scale: Floats = f16(blocks, 0) * (as_f32(s) + np.float32(0.5)) * np.float32(0.5)
        return scale * magnitude * sign(mask, i)
