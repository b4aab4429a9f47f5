"""The plain types: one number an element, so that a whole file opens.

float32 and float16 come through exactly, and so does bfloat16, the upper half of a float32. float64 and the
integers are rounded once to float32, nearest with ties to even; a float64 past its range is inf.
"""

from __future__ import annotations

import numpy as np

from .._bits import Bytes, Floats, u16
from ..base import BlockFormat


class PlainType(BlockFormat):
    """Blocks of one element that NumPy knows as `dtype` (little-endian)."""

    plain = True
    elements = 1
    dtype: str

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        return np.ascontiguousarray(blocks).view(cls.dtype).astype(np.float32)


class F32(PlainType, name="f32"):
    """IEEE binary32."""

    nbytes, dtype = 4, "<f4"


class F16(PlainType, name="f16"):
    """IEEE binary16."""

    nbytes, dtype = 2, "<f2"


class BF16(PlainType, name="bf16"):
    """bfloat16: the sign, the exponent and the top 7 fraction bits of a float32."""

    nbytes, dtype = 2, "<u2"

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        return (u16(blocks, 0) << 16).astype(np.uint32).view(np.float32)


class F64(PlainType, name="f64"):
    """IEEE binary64."""

    nbytes, dtype = 8, "<f8"


class I8(PlainType, name="i8"):
    """Signed bytes."""

    nbytes, dtype = 1, "i1"


class I16(PlainType, name="i16"):
    """Signed 16-bit integers."""

    nbytes, dtype = 2, "<i2"


class I32(PlainType, name="i32"):
    """Signed 32-bit integers."""

    nbytes, dtype = 4, "<i4"


class I64(PlainType, name="i64"):
    """Signed 64-bit integers."""

    nbytes, dtype = 8, "<i8"
