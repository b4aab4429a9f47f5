"""iq2_xxs: grid rows of eight magnitudes, signs of even parity, 4-bit scales."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, as_f32, bits, f16, parity_mask, sign, u8, u32
from .._tables import grid
from ..base import BlockFormat


class IQ2_XXS(BlockFormat, name="iq2_xxs"):
    """256 elements in 66 bytes: eight groups of 32, each of four runs of 8.

    ======  =========================================================================================
    bytes   field
    ======  =========================================================================================
    0..1    d, f16: the scale of the scales
    2..65   one 8-byte record a group: a grid row for each run (u8[4]), then a u32 with the 7-bit sign
            index of run k from bit 7 k on and the scale s in bits 28..31
    ======  =========================================================================================

    y = (d * (s + 0.5) * 0.25) * G * sign, with G a column of the row of ``iq2_xxs_grid``.
    """

    elements, nbytes = 256, 66

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        i = np.arange(256)
        group, run = i // 32, i // 8 % 4
        rows = u8(blocks, 2, 64)[:, 8 * group + run]
        word = u32(blocks, 2, 16)[:, 2 * group + 1]
        mask = parity_mask(bits(word, 7 * run, 7))
        s = bits(word, 28, 4)
        magnitude = as_f32(grid("iq2_xxs_grid")[rows, i % 8])
        scale: Floats = f16(blocks, 0) * (as_f32(s) + np.float32(0.5)) * np.float32(0.25)
        return scale * magnitude * sign(mask, i)
