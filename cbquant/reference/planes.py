"""The NumPy oracle of planes: codes in one array, scales in another, decoded element by element.

A number is the value of its code times its scale, in float32: rounded once. A global scale, which nvfp4 has, multiplies
or divides that in float32 again. Each format states what its codes are (`CODES`), how they lie in bytes, and how many
elements share a scale; ``_scale_index`` says which scale belongs to an element. Nothing here is fast.

>>> import numpy as np
>>> from cbquant.reference import planes
>>> planes.dequant("mxfp4", np.array([[0x21] + [0] * 15], np.uint8), np.array([[127]], np.uint8))[0, :3]
array([0.5, 1. , 0. ], dtype=float32)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import codecs
from ._dequant import bfloat16_bits

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

#: NF4: quantiles of the normal distribution, made so that 0 and both ends are values (QLoRA, arXiv:2305.14314, appendix
#: E; the digits are those of bitsandbytes' float32 constants).
NF4: Floats = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    np.float32,
)
_FP4_MAGNITUDES = np.array([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4])
#: FP4 of bitsandbytes, which is not E2M1 and not in order. Code 8 is -0.0.
FP4: Floats = np.concatenate([_FP4_MAGNITUDES, -_FP4_MAGNITUDES]).astype(np.float32)
NF4.setflags(write=False)
FP4.setflags(write=False)

#: What a code stands for: a kind of `codecs`, or a table of 16.
CODES: dict[str, str | Floats] = {
    "mxfp4_planes": "e2m1",
    "nvfp4_planes": "e2m1",
    "fp8_e4m3": "e4m3fn",
    "fp8_e5m2": "e5m2",
    "nf4": NF4,
    "fp4": FP4,
    "mxfp8_e4m3": "e4m3fn",
    "mxfp8_e5m2": "e5m2",
    "mxfp6_e3m2": "e3m2",
    "mxfp6_e2m3": "e2m3",
    "mxint8": "mxint8",
}
_PAIRS = ("mxfp4_planes", "nvfp4_planes")
_TILED = ("fp8_e4m3", "fp8_e5m2")
_FLAT = ("nf4", "fp4")


def names() -> list[str]:
    """The canonical names of the formats.

    >>> names()[:3]
    ['fp4', 'fp8_e4m3', 'fp8_e5m2']
    """
    return sorted(CODES)


def dequant(
    fmt: str,
    codes: NDArray[Any],
    scales: Any,
    *,
    shape: tuple[int, ...] | None = None,
    global_scale: Any = None,
    global_scale_is: str = "multiplier",
    tile: tuple[int | None, int | None] | None = None,
    block: int = 64,
    nested: tuple[Any, ...] | None = None,
    packed: bool = False,
    dtype: str = "float32",
) -> NDArray[Any]:
    """Decode planes; the arguments are those of `cbquant.planes.dequant`, and are taken to be right.

    Returns
    -------
    ndarray
        float32, float16 or, for "bfloat16", uint16 bit patterns.

    >>> codes = np.array([[0x38, 0x40], [0xB8, 0x7E]], np.uint8)                     # 1, 2, -1, 448
    >>> dequant("fp8_e4m3", codes, np.array([0.5, 2.0], np.float32)).tolist()       # a scale for each row
    [[0.5, 1.0], [-2.0, 896.0]]
    """
    name = next(n for n in CODES if n.removesuffix("_planes") == fmt.removesuffix("_planes"))
    codes = np.asarray(codes)
    if codes.dtype != np.uint8:
        codes = codes.view(np.uint8)
    numbers, dims = _codes(name, codes, np.asarray(scales), packed, shape)
    with np.errstate(all="ignore"):
        y = _values(name, numbers) * _scales(name, scales, dims, tile, block, nested)
        if global_scale is not None:
            factor = np.float32(np.asarray(global_scale).reshape(()))
            y = y / factor if global_scale_is == "divisor" else y * factor
        if dtype == "bfloat16":
            return bfloat16_bits(y)
        return y.astype(dtype)


def _codes(
    name: str, codes: NDArray[np.uint8], scales: NDArray[Any], packed: bool, shape: tuple[int, ...] | None
) -> tuple[Ints, tuple[int, ...]]:
    """One code an element, in the shape of the tensor; and that shape."""
    if name in _FLAT:
        dims = shape if shape is not None else (*codes.shape[:-1], 2 * codes.shape[-1])
        pairs = np.stack([codes.ravel() >> 4, codes.ravel() & 15], axis=1)  # the first element in the high nibble
        numbers = pairs.ravel()[: math.prod(dims)].reshape(dims)
    elif name in _PAIRS:
        if codes.ndim == scales.ndim + 1:  # a group of 16 bytes has an axis of its own
            codes = codes.reshape(*codes.shape[:-2], codes.shape[-2] * codes.shape[-1])
        numbers = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:-1], 2 * codes.shape[-1])
    else:
        numbers = codecs.unpack(codes, 6) if packed else codes
    return numbers.astype(np.int64), numbers.shape


def _values(name: str, numbers: Ints) -> Floats:
    kind = CODES[name]
    return codecs.decode(kind, numbers) if isinstance(kind, str) else kind[numbers]


def _scales(
    name: str,
    scales: Any,
    dims: tuple[int, ...],
    tile: tuple[int | None, int | None] | None,
    block: int,
    nested: tuple[Any, ...] | None,
) -> Floats:
    """The scale of every element, or what broadcasts to it."""
    if name in _FLAT:
        absmax = _absmax(np.asarray(scales).ravel(), nested)
        return absmax[np.arange(math.prod(dims)) // block].reshape(dims)
    if name not in _TILED:
        kind = "e4m3fn" if name == "nvfp4_planes" else "e8m0"
        group = 16 if name == "nvfp4_planes" else 32
        values = codecs.decode(kind, np.asarray(scales).view(np.uint8))
        return values[..., np.arange(dims[-1]) // group]
    values = _as_float32(scales)
    if tile is None and values.ndim == 0:
        return values
    if tile is None and values.ndim == len(dims) - 1:
        return values[..., None]
    down, across = tile if tile is not None else (128, 128)
    columns = np.arange(dims[-1]) // (across or max(1, dims[-1]))
    if len(dims) == 1:
        return values[columns]
    rows = np.arange(dims[-2]) // (down or max(1, dims[-2]))
    return values[..., rows[:, None], columns]


def _absmax(scales: NDArray[Any], nested: tuple[Any, ...] | None) -> Floats:
    """bitsandbytes' absmax; a nested one is itself 8-bit codes of a table under an absmax for each 256."""
    if nested is None:
        return _as_float32(scales)
    absmax2, table2, offset, *rest = nested
    block2 = rest[0] if rest else 256
    outer = np.asarray(absmax2, np.float32).ravel()[np.arange(scales.size) // block2]
    product = np.asarray(table2, np.float32).ravel()[scales] * outer
    return np.asarray(product + np.float32(np.asarray(offset).reshape(())))


def _as_float32(scales: Any) -> Floats:
    """Scales of any type that tiles may have: uint16 is the bits of bfloat16, uint8 is E8M0."""
    array = np.asarray(scales)
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    if array.dtype.itemsize == 1:
        return codecs.decode("e8m0", array.view(np.uint8))
    return array.astype(np.float32)
