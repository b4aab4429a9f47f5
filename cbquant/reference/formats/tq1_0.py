"""tq1_0: ternary codes, five base-3 digits a byte."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, Ints, as_f32, f16, u8
from ..base import BlockFormat


class TQ1_0(BlockFormat, name="tq1_0"):
    """256 elements in 54 bytes.

    ======  ====================================================================================
    bytes   field
    ======  ====================================================================================
    0..31   qs: digit n of byte b is element 32 n + b, n = 0..4 (elements 0..159)
    32..47  qs: digit n of byte 32 + b is element 160 + 16 n + b (elements 160..239)
    48..51  qh: digit n of byte b is element 240 + 4 n + b, n = 0..3 (elements 240..255)
    52..53  d, f16: the scale
    ======  ====================================================================================

    A byte is a fraction of 256, written in base 3 with digit 0 the most significant. Multiplying by 3^n
    modulo 256 moves digit n in front of the point; three times that, divided by 256, is the digit: 0, 1 or
    2 for any byte.

    y = d * (q - 1).
    """

    elements, nbytes = 256, 54

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        codes = u8(blocks, 0, 52)
        runs = [(codes[:, 0:32], 5), (codes[:, 32:48], 5), (codes[:, 48:52], 4)]
        q = np.concatenate([_digit(run, n) for run, digits in runs for n in range(digits)], axis=1)
        return f16(blocks, 52) * as_f32(q - 1)


def _digit(byte: Ints, n: int) -> Ints:
    """Base-3 digit `n` of a byte, the most significant being digit 0."""
    digit: Ints = 3 * (byte * 3**n % 256) // 256
    return digit
