"""`dequant`: any buffer of blocks, through the class of its format, to an array of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbquant._arguments import as_shape, dtype_name
from cbquant._buffer import as_bytes

from ._bits import Bytes, Floats
from .base import BlockFormat, get

# Decoding makes about ten int64 temporaries an element: slices of this many elements keep them to some
# megabytes.
_SLICE = 1 << 18


def bfloat16_bits(x: Floats) -> NDArray[np.uint16]:
    """float32 rounded to bfloat16, nearest with ties to even, as uint16 bit patterns of the same shape.

    Integer arithmetic: half a unit in the last place is added, less one where the kept part is even. Overflow
    gives inf, subnormals are kept. A NaN keeps its sign and top payload bits and is made quiet.

    >>> x = np.array([0x3F818000, 0x7F800001, 0x00000001], np.uint32).view(np.float32)
    >>> [hex(bits) for bits in bfloat16_bits(x)]
    ['0x3f82', '0x7fc0', '0x0']

    Raises
    ------
    TypeError
        `x` is not a float32 ndarray.
    """
    if not isinstance(x, np.ndarray) or x.dtype != np.float32:
        got = x.dtype if isinstance(x, np.ndarray) else type(x).__name__
        raise TypeError(f"x must be a float32 ndarray, got {got}")
    word = np.ascontiguousarray(x).view(np.uint32).reshape(x.shape)
    kept = word >> np.uint32(16)
    rounded = (word + np.uint32(0x7FFF) + (kept & np.uint32(1))) >> np.uint32(16)
    is_nan = (word & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    bits: NDArray[np.uint32] = np.where(is_nan, kept | np.uint32(0x0040), rounded)
    return bits.astype(np.uint16)


def dequant(buf: Any, fmt: str, shape: int | Sequence[int] | None = None, dtype: Any = "float32") -> NDArray[Any]:
    """Decode a buffer of whole blocks.

    Parameters
    ----------
    buf : buffer or array
        The bytes of whole blocks of `fmt`.
    fmt : str
        The format's name, one of `names()`.
    shape : int or sequence of int, optional
        Shape of the result; its last dimension is a multiple of the block. Without it the result is ``[...,
        K]`` where `buf` is a uint8 array whose last axis is whole blocks, else ``[elements]``.
    dtype : "float32", "float16" or "bfloat16"
        float16 is that float32 rounded once more, nearest with ties to even, and so is bfloat16, which
        comes as **uint16 bit patterns**: this module needs nothing but NumPy, which has no bfloat16
        (`cbquant.dequant` returns an ``ml_dtypes.bfloat16`` array).

    Returns
    -------
    ndarray
        float32, float16 or uint16. f64 and integer types are rounded once to float32 first.

    Raises
    ------
    TypeError
        A wrong type of buffer, format, shape or dtype.
    ValueError
        An unknown format, a buffer that is not whole blocks, a shape that does not fit.

    >>> import numpy as np
    >>> rows = np.zeros((3, 2 * 34), np.uint8)
    >>> dequant(rows, "q8_0").shape
    (3, 64)
    >>> dequant(rows.tobytes(), "q8_0").shape
    (192,)
    >>> dequant(rows, "q8_0", shape=(2, 96), dtype="bfloat16").dtype
    dtype('uint16')
    """
    cls = get(fmt)
    dtype = dtype_name(dtype, None)
    raw = as_bytes(buf, cls.name)
    if raw.size % cls.nbytes:
        raise ValueError(f"buf: {raw.size} bytes are not a multiple of {cls.nbytes} (a block of {cls.name})")
    wanted = _natural_shape(raw, cls) if shape is None else _checked_shape(shape, raw.size, cls)
    blocks = raw.reshape(-1, cls.nbytes)
    out = np.empty((len(blocks), cls.elements), np.uint16 if dtype == "bfloat16" else dtype)
    step = max(1, _SLICE // cls.elements)
    for start in range(0, len(blocks), step):
        decoded = cls.decode(blocks[start : start + step])
        with np.errstate(all="ignore"):  # a float16 overflow is inf, and says nothing
            out[start : start + step] = bfloat16_bits(decoded) if dtype == "bfloat16" else decoded
    return out.reshape(wanted)


def _natural_shape(raw: Bytes, cls: type[BlockFormat]) -> tuple[int, ...]:
    """``[..., K]`` where the last axis is whole blocks; everything else is one row."""
    if raw.shape[-1] % cls.nbytes == 0:
        return (*raw.shape[:-1], raw.shape[-1] // cls.nbytes * cls.elements)
    return (raw.size // cls.nbytes * cls.elements,)


def _checked_shape(shape: int | Sequence[int], nbytes: int, cls: type[BlockFormat]) -> tuple[int, ...]:
    dims = as_shape(shape)
    k = dims[-1] if dims else 1  # shape=() is one number, which only a plain type can hold
    if k % cls.elements:
        raise ValueError(f"k={k} is not a multiple of {cls.elements} ({cls.name})")
    needed = math.prod(dims) // cls.elements * cls.nbytes
    if needed != nbytes:
        raise ValueError(f"shape={dims} needs {needed} bytes of {cls.name}, buf has {nbytes}")
    return dims
