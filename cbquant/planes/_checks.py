"""From the arguments of a caller to a `Layout`: what codes and scales each format takes, and what is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant._arguments import as_float32, as_shape, check_native, check_whole, check_word
from cbquant._buffer import as_array
from cbquant._codecs import ML_DTYPES
from cbquant.planes import _formats
from cbquant.planes._formats import PlanesFormat
from cbquant.planes._layout import DIVIDE, MULTIPLY, Layout
from cbquant.planes._nested import absmax

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 64
TILE = (128, 128)
GLOBAL_SCALES = {"multiplier": MULTIPLY, "divisor": DIVIDE}
_FLOATS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "uint16": "bf16"}
_E8M0 = {"uint8": "e8m0", ML_DTYPES["e8m0"]: "e8m0"}
#: The dtypes that scales may have, and what C calls them.
SCALE_TYPES: dict[str, Mapping[str, str]] = {
    "e8m0": _E8M0,
    "e4m3fn": {"uint8": "e4m3fn", ML_DTYPES["e4m3fn"]: "e4m3fn"},
    "tile": {**_FLOATS, **_E8M0},
    "absmax": _FLOATS,
}
# Other dtypes that codes of one byte may have.
_CODE_DTYPES = {**ML_DTYPES, "mxint8": "int8"}


def layout(
    fmt: str,
    codes: Any,
    scales: Any,
    shape: int | Sequence[int] | None = None,
    global_scale: Any = None,
    global_scale_is: str = "multiplier",
    tile: Sequence[int | None] | None = None,
    block: int = BLOCK,
    nested: Sequence[Any] | None = None,
    packed: bool = False,
) -> Layout:
    """The planes, once they fit together; the arguments are those of `cbquant.planes.dequant`."""
    f = _formats.get(fmt)
    check_options(f, tile, block, packed)
    check_word("global_scale_is", global_scale_is, tuple(GLOBAL_SCALES))
    factor = None if global_scale is None else _global_scale(f, global_scale, global_scale_is)
    data = _as_codes(codes, f, packed)
    if f.is_flat:
        return _flat(f, data, scales, shape, block, nested)
    if nested is not None:
        raise ValueError(f"nested: {f.name} has no absmax, only nf4 and fp4 have")
    result = _tiled(f, data, scales, tile) if f.scales == "tile" else _grouped(f, data, scales, packed)
    if shape is not None and as_shape(shape) != result.shape:
        raise ValueError(f"shape: the codes of {f.name} are those of shape {result.shape}, got {as_shape(shape)}")
    if factor is None:
        return result
    return replace(result, global_scale=factor, global_op=GLOBAL_SCALES[global_scale_is])


def check_options(f: PlanesFormat, tile: Any, block: Any, packed: Any) -> None:
    """Refuse what this format does not have."""
    if not isinstance(packed, (bool, np.bool_)):
        raise TypeError(f"packed: expected True or False, got {type(packed).__name__}")
    if packed and f.bits == 8:
        raise ValueError(f"packed: the codes of {f.name} are whole bytes")
    if tile is not None and f.scales != "tile":
        raise ValueError(f"tile: {f.name} has none, only fp8_e4m3 and fp8_e5m2 have")
    if check_whole("block", block) != BLOCK and not f.is_flat:
        raise ValueError(f"block: {f.name} has none, only nf4 and fp4 have")
    if block % 2:
        raise ValueError(f"block: expected an even number, whose codes are whole bytes, got {block}")


def packing(f: PlanesFormat, packed: bool) -> tuple[int, int]:
    """Codes that fill whole bytes, and those bytes."""
    if not (packed or f.always_packed):
        return 1, 1
    n = 8 // math.gcd(8, f.bits)
    return n, n * f.bits // 8


# ---- codes and scales as arrays ----


def _as_codes(codes: Any, f: PlanesFormat, packed: bool) -> NDArray[np.uint8]:
    array = np.asarray(as_array(codes, "codes"))
    own = None if packed or f.always_packed else _CODE_DTYPES.get(f.code)
    if array.dtype.name not in ("uint8", own):
        expected = f"uint8 or {own}" if own else "uint8"
        hint = "; .view(np.uint8) makes it so" if array.dtype.name == "int8" else ""
        raise TypeError(f"codes: expected {expected} for {f.name}, got dtype {array.dtype.name}{hint}")
    if array.ndim == 0:
        raise ValueError("codes: expected at least one dimension, got ()")
    return array.view(np.uint8)


def _as_scales(scales: Any, f: PlanesFormat) -> tuple[NDArray[Any], str]:
    """The array, and what C calls its type."""
    types = SCALE_TYPES[f.scales]
    if isinstance(scales, (int, float)) and not isinstance(scales, bool) and "float32" in types:
        return np.asarray(as_float32("scales", scales)), "f32"
    array = np.asarray(as_array(scales, "scales"))
    kind = types.get(array.dtype.name)
    if kind is None:
        hint = "; .astype(np.float32) makes it so" if array.dtype.kind == "f" and "float32" in types else ""
        raise TypeError(f"scales: expected {', '.join(types)} for {f.name}, got dtype {array.dtype.name}{hint}")
    check_native(array.dtype, "scales")
    return array, kind


def _global_scale(f: PlanesFormat, global_scale: Any, global_scale_is: str) -> float:
    if f.scales != "e4m3fn":
        raise ValueError(f"global_scale: {f.name} has none, only nvfp4_planes has")
    factor = float(as_float32("global_scale", global_scale))
    if factor == 0 and global_scale_is == "divisor":
        raise ValueError("global_scale: expected a divisor other than 0, got 0")
    return factor


# ---- what belongs together ----


def _grouped(f: PlanesFormat, codes: NDArray[np.uint8], scales: Any, packed: bool) -> Layout:
    """A scale for each group of a row's elements."""
    found, kind = _as_scales(scales, f)
    n, size = packing(f, packed)
    group_bytes = f.group // n * size
    if f.always_packed and codes.ndim == found.ndim + 1:
        if codes.shape[-1] != group_bytes or codes.ndim < 2:
            raise ValueError(
                f"codes: expected [..., K / {f.group}, {group_bytes}] beside scales of shape {found.shape} ({f.name}), "
                f"got shape {codes.shape}"
            )
        codes = codes.reshape(*codes.shape[:-2], codes.shape[-2] * group_bytes)
    row_bytes = codes.shape[-1]
    if row_bytes % group_bytes:
        k = f"k={row_bytes // size * n}" if row_bytes % size == 0 else f"a row of {row_bytes} bytes"
        raise ValueError(f"codes: {k} is not a multiple of {f.group} elements under one scale ({f.name})")
    expected = (*codes.shape[:-1], row_bytes // group_bytes)
    if found.shape != expected:
        raise ValueError(
            f"scales: expected shape {expected}, one for each {f.group} elements ({f.name}), got {found.shape}"
        )
    shape = (*codes.shape[:-1], row_bytes // size * n)
    return Layout(f, shape, codes, found, kind, (1, f.group), packed or f.always_packed)


def check_tile(tile: Any, shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a tile of a tensor of this shape, from 1 up; None is all of them."""
    n, k = (shape[-2] if len(shape) > 1 else 1), shape[-1]
    if not isinstance(tile, (tuple, list)) or len(tile) != 2:
        raise TypeError(f"tile: expected (rows, columns), got {tile!r}")
    whole = (max(n, 1), max(k, 1))
    rows, columns = (
        length if part is None else check_whole("tile", part) for part, length in zip(tile, whole, strict=True)
    )
    return rows, columns


def tiles(shape: tuple[int, ...], tile: tuple[int, int]) -> tuple[int, ...]:
    """The shape of the scales of a tensor of this shape."""
    columns = -(-shape[-1] // tile[1])
    return (columns,) if len(shape) == 1 else (*shape[:-2], -(-shape[-2] // tile[0]), columns)


def _tiled(f: PlanesFormat, codes: NDArray[np.uint8], scales: Any, tile: Sequence[int | None] | None) -> Layout:
    """A scale for the tensor, for each row, or for each tile of its matrices."""
    found, kind = _as_scales(scales, f)
    shape = codes.shape
    if tile is None and (found.ndim == 0 or (found.shape == (1,) and len(shape) > 1)):
        whole = check_tile((None, None), shape)
        return Layout(f, shape, codes, np.broadcast_to(found, tiles(shape, whole)), kind, whole, False)
    if tile is None and found.ndim == len(shape) - 1:
        if found.shape != shape[:-1]:
            raise ValueError(f"scales: expected shape {shape[:-1]}, one for each row ({f.name}), got {found.shape}")
        row = check_tile((1, None), shape)
        return Layout(f, shape, codes, found[..., None][..., : tiles(shape, row)[-1]], kind, row, False)
    size = check_tile(TILE if tile is None else tile, shape)
    expected = tiles(shape, size)
    if found.shape != expected:
        raise ValueError(
            f"scales: expected shape {expected} for codes of shape {shape} in tiles of {size[0]} x {size[1]} "
            f"({f.name}), got {found.shape}{'' if tile is not None else _other_tiles(shape, found.shape)}"
        )
    return Layout(f, shape, codes, found, kind, size, False)


def _other_tiles(shape: tuple[int, ...], scales: tuple[int, ...]) -> str:
    """What the caller may have meant: it is never assumed."""
    if scales == (*shape[:-1], 1):
        return "; a scale for each row is tile=(1, None)"
    if scales == (*shape[:-2], 1, 1):
        return "; a scale for each matrix is tile=(None, None)"
    return "; another tile is tile=(rows, columns)"


def _flat(
    f: PlanesFormat, codes: NDArray[np.uint8], scales: Any, shape: Any, block: int, nested: Sequence[Any] | None
) -> Layout:
    """A scale for each run of the whole tensor."""
    dims = (*codes.shape[:-1], 2 * codes.shape[-1]) if shape is None else as_shape(shape)
    n = math.prod(dims)
    if codes.size != -(-n // 2):
        raise ValueError(f"codes: expected {-(-n // 2)} bytes for shape {dims} of {f.name}, got {codes.size}")
    found, kind = _as_scales(scales, f) if nested is None else (absmax(scales, nested), "f32")
    if found.size != -(-n // block):
        raise ValueError(
            f"scales: expected {-(-n // block)} for the {n} elements of shape {dims} in blocks of {block} ({f.name}), "
            f"got {found.size} of shape {found.shape}"
        )
    return Layout(f, dims, codes, found, kind, (0, int(block)), True)
