"""Fields of blocks as integer arrays. `blocks` is uint8 ``[n, block bytes]`` throughout.

Integer fields come back as int64 ``[n, count]``: wide enough for every shift and sum of a layout, and signed,
so that an offset such as ``q - 8`` cannot wrap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


def _field(blocks: Bytes, offset: int, count: int, dtype: str) -> NDArray[Any]:
    stop = offset + count * np.dtype(dtype).itemsize
    return np.ascontiguousarray(blocks[:, offset:stop]).view(dtype)


def u8(blocks: Bytes, offset: int, count: int) -> Ints:
    """`count` bytes from byte `offset` on."""
    return _field(blocks, offset, count, "u1").astype(np.int64)


def i8(blocks: Bytes, offset: int, count: int) -> Ints:
    """`count` two's complement bytes from byte `offset` on."""
    return _field(blocks, offset, count, "i1").astype(np.int64)


def u16(blocks: Bytes, offset: int, count: int = 1) -> Ints:
    """`count` little-endian 16-bit integers from byte `offset` on."""
    return _field(blocks, offset, count, "<u2").astype(np.int64)


def u32(blocks: Bytes, offset: int, count: int = 1) -> Ints:
    """`count` little-endian 32-bit integers from byte `offset` on."""
    return _field(blocks, offset, count, "<u4").astype(np.int64)


def f16(blocks: Bytes, offset: int) -> Floats:
    """The IEEE binary16 number at byte `offset`, exactly, as float32 ``[n, 1]``."""
    return _field(blocks, offset, 1, "<f2").astype(np.float32)


def bits(x: Ints, position: Ints | int, count: int) -> Ints:
    """The `count` bits of `x` from bit `position` on (bit 0 is the lowest)."""
    return (x >> position) & ((1 << count) - 1)


def nibble(x: Ints, high: Ints | int) -> Ints:
    """The low nibble of the byte `x` where `high` is 0, the high nibble where it is 1."""
    return bits(x, 4 * high, 4)


def nibbles_by_half(qs: Ints) -> Ints:
    """Codes ``[n, 2m]`` of bytes ``[n, m]``: all the low nibbles first, then all the high ones."""
    return np.concatenate([nibble(qs, 0), nibble(qs, 1)], axis=1)


def parity_mask(index: Ints) -> Ints:
    """An 8-bit sign mask of a 7-bit index: bit 7 makes the number of set bits even."""
    parity = index ^ (index >> 4)
    parity = parity ^ (parity >> 2)
    parity = parity ^ (parity >> 1)
    return index | ((parity & 1) << 7)


def sign(mask: Ints, element: Ints) -> Floats:
    """float32 -1.0 where bit ``element mod 8`` of `mask` is set, else 1.0."""
    return as_f32(1 - 2 * bits(mask, element % 8, 1))


def k_scales_and_mins(packed: Ints) -> tuple[Ints, Ints]:
    """Eight 6-bit scales and eight 6-bit mins, each ``[n, 8]``, of the 12 bytes ``[n, 12]`` of q4_k and q5_k.

    Bytes 0..3 hold scales 0..3 and bytes 4..7 mins 0..3 in their low 6 bits. The low 4 bits of scales and
    mins 4..7 are the nibbles of bytes 8..11; their high 2 bits are the top bits of bytes 0..3 and 4..7.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = [bits(first, 0, 6), nibble(third, 0) + 16 * bits(first, 6, 2)]
    mins = [bits(second, 0, 6), nibble(third, 1) + 16 * bits(second, 6, 2)]
    return np.concatenate(scales, axis=1), np.concatenate(mins, axis=1)


def as_f32(x: NDArray[np.integer]) -> Floats:
    """Small integers as float32 (exact; 0 becomes +0.0)."""
    return x.astype(np.float32)


def scaled(x: Floats | np.float32, exponent: Ints) -> Floats:
    """x * 2^exponent. (As a C int: NumPy has no `ldexp` for int64 where a C long has 32 bits.)"""
    return np.ldexp(x, exponent.astype(np.intc))
