"""iq1_s: ternary grid rows of eight, shifted by an eighth, 3-bit scales."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, as_f32, bits, f16, u8, u16
from .._tables import grid
from ..base import BlockFormat


class IQ1_S(BlockFormat, name="iq1_s"):
    """256 elements in 50 bytes: eight groups of 32, each of four runs of 8.

    ======  =========================================================================================
    bytes   field
    ======  =========================================================================================
    0..1    d, f16: the scale of the scales
    2..33   qs: the low 8 bits of the grid row of each run
    34..49  qh, u16: one a group; the high 3 bits of the row of its run k from bit 3 k on, the scale s
            in bits 12..14, and bit 15: the shift is -0.125 where it is set, else 0.125
    ======  =========================================================================================

    y = (d * (2 s + 1)) * (G + shift), with G = -1, 0 or 1 a column of the row of ``iq1_s_grid``.
    """

    elements, nbytes = 256, 50

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        i = np.arange(256)
        run = i // 8
        qh = u16(blocks, 34, 8)[:, i // 32]
        rows = u8(blocks, 2, 32)[:, run] + 256 * bits(qh, 3 * (run % 4), 3)
        s = bits(qh, 12, 3)
        shift = np.where(bits(qh, 15, 1) == 1, np.float32(-0.125), np.float32(0.125))
        shifted: Floats = as_f32(grid("iq1_s_grid")[rows, i % 8]) + shift
        return (f16(blocks, 0) * as_f32(2 * s + 1)) * shifted
