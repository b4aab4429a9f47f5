"""Damage in codes beside scales: blocks whose scale is NaN or infinite, or of FP8 any of whose numbers is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cbquant.planes._layout import Layout
from cbquant.planes._tensor import PlanesTensor

#: Codes that are looked at in one go.
_CODES = 1 << 24

#: Type of scales -> the mask of their bits, and the smallest value under it that is no finite number.
_NOT_FINITE = {
    "f32": (0x7FFFFFFF, 0x7F800000),
    "f16": (0x7FFF, 0x7C00),
    "bf16": (0x7FFF, 0x7F80),
    "e8m0": (0xFF, 0xFF),
    "e4m3fn": (0x7F, 0x7F),
    "e5m2": (0x7F, 0x7C),
}


def bad_blocks(tensor: PlanesTensor) -> tuple[int, NDArray[np.int64]]:
    """How many blocks there are, which have a scale each, and the indices of those that are damaged, in order."""
    layout = tensor._layout
    bad = _bad(layout.scales, layout.scale_type).reshape(-1)
    if layout.format.code in _NOT_FINITE:  # other codes are numbers all
        for indices in _bad_codes(layout):
            bad[indices] = True
    return bad.size, np.flatnonzero(bad)


def _bad(array: NDArray[np.generic], kind: str) -> NDArray[np.bool_]:
    mask, least = _NOT_FINITE[kind]
    bits = array.view(f"u{array.itemsize}")
    return np.asarray((bits & bits.dtype.type(mask)) >= least)


def _bad_codes(layout: Layout) -> Iterator[NDArray[np.int64]]:
    """The blocks of codes of one byte that are NaN or infinite."""
    k, (tile_rows, tile_columns) = layout.k, layout.tile
    n = layout.shape[-2] if len(layout.shape) > 1 else 1
    codes = layout.codes.reshape(-1, k) if k else layout.codes.reshape(0, 1)
    step = max(1, _CODES // max(k, 1))
    for begin in range(0, len(codes), step):
        rows, columns = np.nonzero(_bad(codes[begin : begin + step], layout.format.code))
        matrix, row = np.divmod(rows + begin, n)
        tiles = matrix * -(-n // tile_rows) + row // tile_rows
        yield tiles * -(-k // tile_columns) + columns // tile_columns
