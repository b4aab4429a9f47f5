"""mxfp4: E2M1 codes under one E8M0 scale (OCP Microscaling Formats 1.0)."""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, nibbles_by_half, scaled, u8
from .._codebooks import E2M1
from ..base import BlockFormat


class MXFP4(BlockFormat, name="mxfp4"):
    """32 elements in 17 bytes.

    ======  ===================================================================
    bytes   field
    ======  ===================================================================
    0       x, E8M0: the scale 2^(x - 127)
    1..16   qs: the low nibbles are elements 0..15, the high nibbles 16..31
    ======  ===================================================================

    y = scale * E[q], with E the values of `E2M1`. x = 0 is the float32 subnormal 2^-127. At x = 254 the
    magnitudes from 2 up overflow to inf. x = 255 is NaN, and so are all 32 values.
    """

    elements, nbytes = 32, 17

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        x = u8(blocks, 0, 1)
        scale: Floats = np.where(x == 255, np.float32(np.nan), scaled(np.float32(1), x - 127))
        return scale * E2M1[nibbles_by_half(u8(blocks, 1, 16))]
