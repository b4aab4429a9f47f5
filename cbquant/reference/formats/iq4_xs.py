"""iq4_xs: the codes of iq4_nl, eight groups with 6-bit scales."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, as_f32, bits, f16, nibble, u8, u16
from .._codebooks import IQ4
from ..base import BlockFormat


class IQ4_XS(BlockFormat, name="iq4_xs"):
    """256 elements in 136 bytes: eight groups of 32.

    ======  =========================================================================================
    bytes   field
    ======  =========================================================================================
    0..1    d, f16: the scale of the scales
    2..3    scales_h, u16: bits 2g are the high 2 bits of s[g]
    4..7    scales_l: nibble g, low ones first, is the low 4 bits of s[g]
    8..135  qs: 16 bytes a group; its low nibbles are elements 0..15, its high nibbles 16..31
    ======  =========================================================================================

    y = (d * (s - 32)) * C[q], with C as in iq4_nl; scales stand for -32..31.
    """

    elements, nbytes = 256, 136

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        i = np.arange(256)
        group = i // 32
        low = nibble(u8(blocks, 4, 4)[:, group // 2], group % 2)
        s = low + 16 * bits(u16(blocks, 2), 2 * group, 2)
        q = nibble(u8(blocks, 8, 128)[:, 16 * group + i % 16], i // 16 % 2)
        return (f16(blocks, 0) * as_f32(s - 32)) * IQ4[q]
