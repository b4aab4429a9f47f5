"""Between planes and GGUF's blocks, where both hold the same numbers: mxfp4 and nvfp4."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant import _formats as block_formats
from cbquant._arguments import check_shape
from cbquant._buffer import as_bytes
from cbquant._formats import Format
from cbquant.planes import _checks
from cbquant.planes import _formats as plane_formats
from cbquant.planes._formats import PlanesFormat
from cbquant.planes._quantize import Planes

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A step of so many bytes of blocks stays in the cache.
_STEP = 1 << 17


def to_blocks(
    fmt: str, codes: Any, scales: Any, *, global_scale: Any = None, global_scale_is: str = "multiplier"
) -> NDArray[np.uint8]:
    """Planes of mxfp4 or nvfp4 as GGUF's blocks of the same name: the same numbers, to the bit.

    Parameters
    ----------
    fmt : "mxfp4" or "nvfp4"
        With or without ``_planes``.
    codes, scales, global_scale, global_scale_is
        As for `dequant`. A global scale must be 1: blocks have none.

    Returns
    -------
    ndarray of uint8
        ``[..., row bytes]``, as `cbquant.dequant` and `cbquant.QuantTensor` take it.

    Raises
    ------
    ValueError
        Another format; what blocks cannot hold: a global scale other than 1, rows of nvfp4 that are no multiple of
        64, its scales that are negative or NaN (with row and column); and as `dequant`.
    TypeError
        As `dequant`.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> codes, scales = np.arange(16, dtype=np.uint8).reshape(1, 1, 16), np.array([[127]], np.uint8)
    >>> blocks = cbquant.planes.to_blocks("mxfp4", codes, scales)
    >>> blocks.shape
    (1, 17)
    >>> bool(np.all(cbquant.dequant(blocks, "mxfp4") == cbquant.planes.dequant("mxfp4", codes, scales)))
    True
    """
    f, blocks = _pair(fmt)
    planes = _checks.layout(fmt, codes, scales, None, global_scale, global_scale_is)
    if planes.global_scale != 1:
        raise ValueError(f"global_scale: blocks of {blocks.name} have none, expected 1, got {planes.global_scale:g}")
    if planes.k % blocks.elements:
        raise ValueError(f"codes: k={planes.k} is not a multiple of {blocks.elements} (GGUF's {blocks.name})")
    given = np.ascontiguousarray(planes.scales).view(np.uint8)
    if f.scales == "e4m3fn":
        _refuse("scales", beyond_nvfp4(given), given, "is negative or NaN, which GGUF's nvfp4 cannot hold")
    row = planes.k // blocks.elements * blocks.bytes
    result = np.empty((*planes.shape[:-1], row), np.uint8)
    records = result.reshape(-1).view(_record(f, blocks))
    pairs = np.ascontiguousarray(planes.codes).reshape(records["codes"].shape)
    records["scales"] = given.reshape(records["scales"].shape)
    for part in _steps(len(records), blocks):
        records["codes"][part] = pairs_to_halves(pairs[part])
    return result


def beyond_nvfp4(scales: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which bytes of E4M3 are scales that GGUF's nvfp4 cannot hold: negative ones, and NaN."""
    beyond: NDArray[np.bool_] = (scales & 0x80 != 0) | (scales == 0x7F)
    return beyond


def from_blocks(buf: Any, fmt: str, shape: int | Sequence[int] | None = None) -> Planes:
    """GGUF's blocks of mxfp4 or nvfp4 as planes: the same numbers, to the bit.

    Parameters
    ----------
    buf : buffer or array
        Whole blocks, row after row, as for `cbquant.dequant`.
    fmt : "mxfp4" or "nvfp4"
        With or without ``_planes``.
    shape : int or sequence of int, optional
        Shape in elements; without it ``[..., K]`` for a uint8 array whose last axis is whole blocks, else 1-D.

    Returns
    -------
    Planes
        ``(codes, scales, global_scale)``: ``[..., K/32, 16]`` and ``[..., K/32]`` of mxfp4, ``[..., K/2]`` and ``[...,
        K/16]`` of nvfp4, whose global scale is 1.

    Raises
    ------
    ValueError
        Another format; bytes that are not whole blocks or do not fit `shape`; a scale byte 0xFF of nvfp4, which is
        480 in blocks and NaN in planes (with its row and column).
    TypeError
        A wrong type of buffer.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> block = bytes([127, 0x21]) + bytes(15)                          # elements 0 and 16 are 0.5 and 1
    >>> codes, scales, _ = cbquant.planes.from_blocks(block, "mxfp4")
    >>> codes[0].tolist()
    [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]
    """
    f, blocks = _pair(fmt)
    data = as_bytes(buf, blocks.name)
    dims = _shape(data, blocks, shape)
    records = data.reshape(-1).view(_record(f, blocks))
    lead, groups = dims[:-1], dims[-1] // f.group
    scales = records["scales"].reshape(*lead, groups).copy()
    if f.scales == "e4m3fn":
        _refuse("buf", scales == 0xFF, scales, "is a scale of 480 in blocks, which planes cannot hold")
        scales[scales == 0x7F] = 0  # that is zero in blocks, NaN in planes
        scales &= 0x7F  # blocks ignore the sign
    codes = np.empty(records["codes"].shape, np.uint8)
    for part in _steps(len(records), blocks):
        codes[part] = halves_to_pairs(np.ascontiguousarray(records["codes"][part]))
    if f.scales == "e4m3fn":
        return Planes(codes.reshape(*lead, dims[-1] // 2), scales, 1.0)
    return Planes(codes.reshape(*lead, groups, f.group // 2), scales, None)


def _pair(fmt: str) -> tuple[PlanesFormat, Format]:
    """The format of planes of that name, and that of GGUF's blocks."""
    f = plane_formats.get(fmt)
    name = f.name.removesuffix("_planes")
    if name == f.name:
        raise ValueError(f"fmt: GGUF has no blocks of {name}, only of mxfp4 and nvfp4")
    return f, block_formats.get(name)


def _record(f: PlanesFormat, blocks: Format) -> np.dtype[Any]:
    groups = blocks.elements // f.group
    return np.dtype([("scales", np.uint8, (groups,)), ("codes", np.uint8, (groups, f.group // 2))])


def _shape(data: NDArray[np.uint8], blocks: Format, shape: int | Sequence[int] | None) -> tuple[int, ...]:
    if shape is not None:
        return check_shape(blocks, shape, data.size)
    if data.size % blocks.bytes:
        raise ValueError(f"buf: {data.size} bytes are not a multiple of {blocks.bytes} (one block of {blocks.name})")
    if data.shape[-1] % blocks.bytes:
        return (data.size // blocks.bytes * blocks.elements,)
    return (*data.shape[:-1], data.shape[-1] // blocks.bytes * blocks.elements)


def _refuse(name: str, bad: NDArray[np.bool_], scales: NDArray[np.uint8], why: str) -> None:
    """A ValueError that names the first bad scale, if there is one."""
    if not bad.any():
        return
    rows = bad.reshape(-1, bad.shape[-1])
    row, column = (int(i) for i in np.unravel_index(int(rows.argmax()), rows.shape))
    raise ValueError(f"{name}: scale 0x{scales.reshape(rows.shape)[row, column]:02X} (row {row}, scale {column}) {why}")


def _steps(n: int, blocks: Format) -> Iterator[slice]:
    step = _STEP // blocks.bytes
    return (slice(begin, begin + step) for begin in range(0, n, step))


# A group of 2h elements is h bytes. In planes byte i has elements 2i and 2i + 1, in blocks i and i + h; the lower
# one is in the low nibble. So the low nibbles of a half of the one are every second byte of the other. Half a group
# is an integer.


def pairs_to_halves(pairs: NDArray[np.uint8]) -> NDArray[np.uint8]:
    words = pairs.view(f"u{pairs.shape[-1] // 2}")
    first, second = words[..., 0], words[..., 1]
    low, high = _nibbles(words.dtype)
    even = (first & low) | ((second & low) << 4)
    odd = ((first >> 4) & low) | (second & high)
    return np.stack([even.reshape(-1).view(np.uint8), odd.reshape(-1).view(np.uint8)], axis=-1).reshape(pairs.shape)


def halves_to_pairs(halves: NDArray[np.uint8]) -> NDArray[np.uint8]:
    word = np.dtype(f"u{halves.shape[-1] // 2}")
    even, odd = (halves.reshape(-1)[i::2].copy().view(word) for i in (0, 1))
    low, high = _nibbles(word)
    first = (even & low) | ((odd & low) << 4)
    second = ((even >> 4) & low) | (odd & high)
    return np.stack([first, second], axis=-1).view(np.uint8).reshape(halves.shape)


def _nibbles(word: np.dtype[Any]) -> tuple[Any, Any]:
    """The low and the high nibbles of a word's bytes."""
    ones = int.from_bytes(bytes([1]) * word.itemsize, "little")
    return word.type(ones * 0x0F), word.type(ones * 0xF0)
