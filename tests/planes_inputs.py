"""Planes to test with, and the plainest decoder of what Python hands to C."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from cbquant import _core
from cbquant.planes import _checks
from cbquant.planes._layout import Layout
from cbquant.reference import codecs, planes

#: The rows of C's list by name: (name, code, bits, always_packed, high_first, group, scales, integer).
ROWS = {row[0]: row for row in _core.plane_formats()}
NAMES = list(ROWS)
GROUPED = [name for name, row in ROWS.items() if row[5]]
TILED = [name for name, row in ROWS.items() if row[6] == "tile"]
FLAT = [name for name, row in ROWS.items() if row[6] == "absmax"]
INTEGER = [name for name, row in ROWS.items() if row[7]]
SCALE_DTYPES: dict[str, list[Any]] = {
    "tile": [np.float32, np.float16, ml_dtypes.bfloat16, np.uint16, np.uint8, ml_dtypes.float8_e8m0fnu],
    "absmax": [np.float32, np.float16, ml_dtypes.bfloat16, np.uint16],
    "e8m0": [np.uint8, ml_dtypes.float8_e8m0fnu],
    "e4m3fn": [np.uint8, ml_dtypes.float8_e4m3fn],
}
#: Bits of float32 that go wrong first: zeros, subnormals, the largest, infinity, NaN.
SPECIAL = [0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001]


@dataclass(frozen=True)
class Case:
    """Planes of a tensor, as a caller has them."""

    fmt: str
    codes: NDArray[Any]
    scales: Any
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        return _checks.layout(self.fmt, self.codes, self.scales, **self.options)

    def expected(self, dtype: str = "float32") -> NDArray[Any]:
        return planes.dequant(self.fmt, self.codes, self.scales, **self.options, dtype=dtype)


def random_scales(shape: tuple[int, ...], kind: str, dtype: Any, seed: Any, any_bits: bool) -> NDArray[Any]:
    """Any bits, special ones among them, or numbers about 1."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if not any_bits:
        if dtype.itemsize == 1:
            return rng.integers(*((0x30, 0x48) if kind == "e4m3fn" else (122, 132)), shape).astype(np.uint8).view(dtype)
        floats = rng.uniform(0.5, 2, shape).astype(ml_dtypes.bfloat16 if dtype == np.uint16 else dtype)
        return floats.view(dtype)
    if dtype.itemsize == 1 or dtype == np.uint16:
        return rng.integers(0, 256**dtype.itemsize, shape).astype(f"u{dtype.itemsize}").view(dtype)
    bits = rng.integers(0, 2**32, shape, dtype=np.uint32)
    bits = np.where(rng.random(shape) < 0.2, rng.choice(np.array(SPECIAL, np.uint32), shape), bits).astype(np.uint32)
    with np.errstate(all="ignore"):
        return bits.view(np.float32).astype(dtype)


def make(
    fmt: str,
    shape: tuple[int, ...],
    seed: int = 0,
    scale_dtype: Any = None,
    any_bits: bool = True,
    **options: Any,
) -> Case:
    """Random planes of a tensor of this shape. `tile`, `block`, `packed`, `global_scale` .. go to the decoder."""
    _, _, bits, always_packed, _, group, kind, _ = ROWS[fmt]
    rng = np.random.default_rng([seed, *shape, len(fmt)])
    dtype = scale_dtype or SCALE_DTYPES[kind][0]
    scales = functools.partial(random_scales, kind=kind, dtype=dtype, seed=[seed, *shape], any_bits=any_bits)
    packed = always_packed or options.get("packed", False)
    if kind == "absmax":
        n, block = math.prod(shape), options.get("block", 64)
        codes = rng.integers(0, 256, -(-n // 2), dtype=np.uint8)
        return Case(fmt, codes, scales((-(-n // block),)), {**options, "shape": shape})
    codes = rng.integers(0, 256, (*shape[:-1], shape[-1] * (bits if packed else 8) // 8), dtype=np.uint8)
    if kind != "tile":
        return Case(fmt, codes, scales((*shape[:-1], shape[-1] // group)), options)
    tile = options.get("tile", (128, 128))
    if tile in ("row", "tensor"):
        return Case(fmt, codes, scales(shape[:-1] if tile == "row" else ()))
    return Case(fmt, codes, scales(_checks.tiles(shape, _checks.check_tile(tile, shape))), options)


def layouts_of(fmt: str) -> list[Case]:
    """Every kind of layout that a format has, small ones with odd sizes."""
    group, kind = ROWS[fmt][5], ROWS[fmt][6]
    cases = []
    for number, dtype in enumerate(SCALE_DTYPES[kind]):
        if kind == "absmax":
            shapes = [(1,), (7,), (65,), (5, 7), (3, 64), (2, 3, 65), (4, 256), (1031,), (0,), (3, 0)]
            blocks = [64, 32, 6, 2, 4096]
            cases += [make(fmt, shape, number, dtype, block=block) for shape in shapes for block in blocks]
        elif kind == "tile":
            shapes = [
                (1,),
                (5,),
                (300,),
                (1, 1),
                (7, 13),
                (129, 130),
                (3, 5, 257),
                (2, 2, 3, 4),
                (0, 7),
                (7, 0),
                (2, 0, 3),
            ]
            tiles = [(128, 128), "row", "tensor", (1, 128), (3, 5), (None, 2), (1, None), (None, None), (128, 1)]
            cases += [make(fmt, shape, number, dtype, tile=tile) for shape in shapes for tile in tiles]
        else:
            shapes = [(group,), (1, group), (3, 2 * group), (2, 3, 5 * group), (5, 33 * group), (0, group), (3, 0)]
            options: list[dict[str, Any]] = [{}, {"packed": True}] if fmt.startswith("mxfp6") else [{}]
            if kind == "e4m3fn":
                options += [{"global_scale": 0.37}, {"global_scale": np.float32([-3e-5]), "global_scale_is": "divisor"}]
            cases += [make(fmt, shape, number, dtype, **more) for shape in shapes for more in options]
    return cases


def decode(arguments: tuple[Any, ...]) -> NDArray[np.float32]:
    """What C makes of a layout's tuple: every element by itself, in order."""
    fmt, packed, codes, scales, scale_type, rows, rows_per_matrix, k, tile_rows, tile_columns, factor, operation = (
        arguments
    )
    _, code, bits, _, high_first, *_ = ROWS[fmt]
    n = rows * k
    if bits == 4:
        nibbles = [codes.reshape(-1) >> 4, codes.reshape(-1) & 15]
        numbers = np.stack(nibbles if high_first else nibbles[::-1], axis=1).reshape(-1)[:n]
    else:
        numbers = codecs.unpack(codes.reshape(-1), 6) if packed else codes.reshape(-1)
    row, column = np.divmod(np.arange(n), max(k, 1))
    if tile_rows:
        matrix, row = np.divmod(row, max(rows_per_matrix, 1))
        place = matrix * -(-rows_per_matrix // tile_rows) + row // tile_rows
        place = place * -(-k // tile_columns) + column // tile_columns
    else:
        place = np.arange(n) // tile_columns
    values = planes.CODES[fmt][numbers] if code == "table" else codecs.decode(code, numbers)
    with np.errstate(all="ignore"):
        y = values * _numbers(scales.reshape(-1), scale_type)[place]
        return {0: y, 1: y * np.float32(factor), 2: y / np.float32(factor)}[operation]


def _numbers(scales: NDArray[Any], scale_type: str) -> NDArray[np.float32]:
    if scale_type == "bf16":
        return (scales.astype(np.uint32) << 16).view(np.float32)
    return scales.astype(np.float32) if scale_type in ("f32", "f16") else codecs.decode(scale_type, scales)


def assert_same(actual: NDArray[Any], expected: NDArray[Any]) -> None:
    """The same shape, and the same bits but that any NaN is any NaN; uint16 and bfloat16 are the same."""
    assert actual.shape == expected.shape
    a, b = (_as_float32(array) for array in (actual, expected))
    is_nan = np.isnan(b)
    assert np.array_equal(np.isnan(a), is_nan)
    assert np.array_equal(a.view(np.uint32)[~is_nan], b.view(np.uint32)[~is_nan])


def _as_float32(array: NDArray[Any]) -> NDArray[np.float32]:
    if array.dtype.name in ("uint16", "bfloat16"):
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.ascontiguousarray(array, np.float32)
