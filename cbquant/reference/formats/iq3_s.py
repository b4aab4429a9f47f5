"""iq3_s: grid rows of four magnitudes, one sign bit an element, 4-bit scales."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, as_f32, bits, f16, nibble, sign, u8
from .._tables import grid
from ..base import BlockFormat


class IQ3_S(BlockFormat, name="iq3_s"):
    """256 elements in 110 bytes: eight groups of 32.

    ========  =======================================================================================
    bytes     field
    ========  =======================================================================================
    0..1      d, f16: the scale of the scales
    2..65     qs: the low 8 bits of the grid row of each four elements
    66..73    qh: the ninth bit of the grid rows, one byte a group, lowest bit first
    74..105   signs: one byte for eight elements, lowest bit first
    106..109  scales: nibble g, low ones first, is the scale s of group g
    ========  =======================================================================================

    y = (d * (2 s + 1)) * G * sign, with G a column of the row of ``iq3_s_grid``.
    """

    elements, nbytes = 256, 110

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        i = np.arange(256)
        group, four = i // 32, i // 4
        ninth = bits(u8(blocks, 66, 8)[:, group], four % 8, 1)
        rows = u8(blocks, 2, 64)[:, four] + 256 * ninth
        s = nibble(u8(blocks, 106, 4)[:, group // 2], group % 2)
        magnitude = as_f32(grid("iq3_s_grid")[rows, i % 4])
        mask = u8(blocks, 74, 32)[:, i // 8]
        return (f16(blocks, 0) * as_f32(2 * s + 1)) * magnitude * sign(mask, i)
