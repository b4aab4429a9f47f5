"""q8_0: signed bytes under one scale."""

from __future__ import annotations

from .._bits import Bytes, Floats, as_f32, f16, i8
from ..base import BlockFormat


class Q8_0(BlockFormat, name="q8_0"):
    """32 elements in 34 bytes.

    ======  =====================================
    bytes   field
    ======  =====================================
    0..1    d, f16: the scale
    2..33   qs, i8: one code an element, in order
    ======  =====================================

    y = d * q, with q = -128..127.
    """

    elements, nbytes = 32, 34

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        return f16(blocks, 0) * as_f32(i8(blocks, 2, 32))
