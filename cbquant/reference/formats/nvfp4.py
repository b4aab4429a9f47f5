"""nvfp4: E2M1 codes under an unsigned E4M3 scale for each sixteen."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, Ints, as_f32, bits, nibble, scaled, u8
from .._codebooks import E2M1
from ..base import BlockFormat


class NVFP4(BlockFormat, name="nvfp4"):
    """64 elements in 36 bytes: four runs of 16.

    ======  =========================================================================================
    bytes   field
    ======  =========================================================================================
    0..3    x: one scale byte a run
    4..35   qs: 8 bytes a run; its low nibbles are elements 0..7, its high nibbles 8..15
    ======  =========================================================================================

    A scale has 4 exponent bits a and 3 fraction bits f: f * 2^-9 where a = 0, else (1 + f / 8) * 2^(a - 7).
    Bit 7 is ignored, but for one byte: 0x7F alone is 0, where 0xFF is 480. No scale is NaN, and none is
    negative.

    y = scale * E[q], with E the values of `E2M1`.
    """

    elements, nbytes = 64, 36

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        i = np.arange(64)
        run = i // 16
        scale = cls._scales(u8(blocks, 0, 4))
        q = nibble(u8(blocks, 4, 32)[:, 8 * run + i % 8], i // 8 % 2)
        return scale[:, run] * E2M1[q]

    @staticmethod
    def _scales(x: Ints) -> Floats:
        """The float32 of scale bytes; every one is exact."""
        exponent, fraction = bits(x, 3, 4), bits(x, 0, 3)
        subnormal = as_f32(fraction) * np.float32(2**-9)
        normal = scaled(as_f32(8 + fraction), exponent - 10)
        scale: Floats = np.where(exponent == 0, subnormal, normal)
        scale[x == 0x7F] = 0
        return scale
