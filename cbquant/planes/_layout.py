"""Planes that fit together: the codes and scales of a tensor, as C takes them, and choices of their rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbquant import _core
from cbquant._arguments import check_out, check_threads, dtype_name, empty
from cbquant.planes._formats import PlanesFormat

NO_GLOBAL_SCALE, MULTIPLY, DIVIDE = 0, 1, 2
# For new memory: see cbquant/_api.py.
_THROUGH_CACHE = 0
# Codes that are whole bytes in every format.
_FEW = 8

Key = int | slice | NDArray[Any]


@dataclass(frozen=True, eq=False)
class Layout:
    """A tensor in planes. It is made by `_checks.layout`, or chosen of another; nothing is checked here.

    Attributes
    ----------
    format : PlanesFormat
        The format.
    shape : tuple of int
        In elements.
    codes : ndarray of uint8
        ``[..., row bytes]``; of flat formats any shape, in order.
    scales : ndarray
        ``[..., ceil(N / rows of a tile), ceil(K / columns of a tile)]``, without the axis of N where the tensor has
        none; of flat formats any shape, in order.
    scale_type : str
        The type of the scales as C names it.
    tile : (int, int)
        Rows and columns under one scale, from 1 up; (0, block), an even number, where runs of the whole tensor
        have one.
    packed : bool
        Whether codes share bytes.
    global_scale, global_op : float, int
        What all numbers are multiplied with or divided by, if anything.
    """

    format: PlanesFormat
    shape: tuple[int, ...]
    codes: NDArray[np.uint8]
    scales: NDArray[Any]
    scale_type: str
    tile: tuple[int, int]
    packed: bool
    global_scale: float = 1.0
    global_op: int = NO_GLOBAL_SCALE

    @property
    def k(self) -> int:
        """The length of a row; a number without dimensions is a row of one."""
        return self.shape[-1] if self.shape else 1

    @property
    def memory(self) -> tuple[NDArray[Any], ...]:
        """The arrays that an output must not overlap."""
        return self.codes, self.scales

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales; a scale that stands for many matrices counts once."""
        own = [length for length, stride in zip(self.scales.shape, self.scales.strides, strict=True) if stride]
        return self.codes.nbytes + (math.prod(own) if self.scales.size else 0) * self.scales.itemsize

    def planes(self) -> tuple[Any, ...]:
        """The tuple that the functions of C take."""
        rows = math.prod(self.shape[:-1])
        rows_per_matrix = self.shape[-2] if len(self.shape) > 1 else 1
        codes, scales = np.ascontiguousarray(self.codes), np.require(bits(self.scales), None, ["C", "A"])
        arrays = (self.format.name, self.packed, codes, scales, self.scale_type)
        return (*arrays, rows, rows_per_matrix, self.k, *self.tile, self.global_scale, self.global_op)

    # ---- decoding ----

    def dequant(self, dtype: Any, out: NDArray[Any] | None, threads: int | None) -> NDArray[Any]:
        """The numbers, in `out` or a new array."""
        kind = dtype_name(dtype, out)
        if out is None:
            result = empty(self.shape, kind)
            _core.dequant_planes(self.planes(), result, kind, check_threads(threads), None, _THROUGH_CACHE)
            return result
        result = check_out(out, self.shape, kind)
        if any(np.may_share_memory(part, out) for part in self.memory):
            raise ValueError("out: expected memory of its own, it overlaps codes or scales")
        _core.dequant_planes(self.planes(), result, kind, check_threads(threads))
        return out

    def piece(self, rows: slice, columns: slice, threads: int | None = None) -> NDArray[np.float32]:
        """The numbers in some columns of some rows, which are counted over all matrices: little more is decoded."""
        if self.format.is_flat:
            return self._piece_of_runs(rows, columns, threads)
        # Whole scales of a row, or any of its bytes where it has but one.
        step = self.tile[1] if self.tile[1] < self.k else _FEW
        begin = columns.start // step * step
        end = min(-(-columns.stop // step) * step, self.k)
        row_bytes, scale = self.codes.shape[-1], self.tile[1]
        part = self._rows_at(np.arange(rows.start, rows.stop))
        part = replace(
            part,
            shape=(rows.stop - rows.start, end - begin),
            codes=part.codes[:, begin * row_bytes // self.k : end * row_bytes // self.k],
            scales=part.scales[:, begin // scale : -(-end // scale)],
        )
        return part.dequant("float32", None, threads)[:, columns.start - begin : columns.stop - begin]

    def _piece_of_runs(self, rows: slice, columns: slice, threads: int | None) -> NDArray[np.float32]:
        if rows.stop - rows.start > 1:
            values = self._run(rows.start * self.k, rows.stop * self.k, threads)
            return values.reshape(-1, self.k)[:, columns]
        before = rows.start * self.k
        return self._run(before + columns.start, before + columns.stop, threads)[None]

    def _run(self, start: int, stop: int, threads: int | None) -> NDArray[np.float32]:
        """The numbers of a flat format from one to another, in the order of the whole tensor."""
        block = self.tile[1]
        first = start // block
        begin = first * block
        codes, scales = self.codes.reshape(-1), self.scales.reshape(-1)
        codes, scales = codes[begin // 2 : -(-stop // 2)], scales[first : -(-stop // block)]
        run = replace(self, shape=(stop - begin,), codes=codes, scales=scales)
        return run.dequant("float32", None, threads)[start - begin :]

    def _rows_at(self, numbers: NDArray[np.intp]) -> Layout:
        if len(self.shape) == 1:
            codes, scales = self.codes[None], self.scales[None]
        else:
            *matrices, row = np.unravel_index(numbers, self.shape[:-1])
            places, tiles = (*matrices, row), (*matrices, row // self.tile[0])
            codes, scales = self.codes[places], self.scales[tiles]
        return replace(self, shape=(len(codes), self.k), codes=codes, scales=scales, tile=(1, self.tile[1]))

    # ---- choices ----

    def choose(self, keys: tuple[Key, ...]) -> Layout:
        """What these keys, in range, choose from all axes but the last: ints and slices, or an array from the first.

        Raises
        ------
        ValueError
            The scales of a flat format are not those of whole rows.
        """
        while keys and _is_all(keys[-1], self.shape[len(keys) - 1]):
            keys = keys[:-1]
        if not keys:
            return self
        if self.format.is_flat:
            return self._choose_runs(keys)
        codes = self.codes[keys]
        shape = (*codes.shape[:-1], self.k)
        if len(keys) < len(self.shape) - 1:
            return replace(self, shape=shape, codes=codes, scales=self.scales[keys])
        scales, tile = self._choose_tiles(self.scales[keys[:-1]], keys[-1])
        return replace(self, shape=shape, codes=codes, scales=scales, tile=tile)

    def _choose_tiles(self, scales: NDArray[Any], rows: Key) -> tuple[NDArray[Any], tuple[int, int]]:
        """The scales of the chosen rows of each matrix, and their tiles: the same ones where the rows are whole
        tiles of them or lie in one, else a row each."""
        (tile_rows, columns), n = self.tile, self.shape[-2]
        if not isinstance(rows, slice):
            numbers = np.asarray(rows)
            return np.take(scales, np.where(numbers < 0, numbers + n, numbers) // tile_rows, axis=-2), (1, columns)
        if tile_rows == 1:
            return scales[..., rows, :], self.tile
        chosen = range(*rows.indices(n))
        first, last = (min(chosen) // tile_rows, max(chosen) // tile_rows) if chosen else (0, -1)
        if first >= last or (chosen.step == 1 and chosen.start % tile_rows == 0):
            return scales[..., first : last + 1, :], self.tile
        return np.take(scales, np.asarray(chosen) // tile_rows, axis=-2), (1, columns)

    def _choose_runs(self, keys: tuple[Key, ...]) -> Layout:
        block, shape = self.tile[1], self.shape[len(keys) :]
        size = math.prod(shape)
        if size % block:
            raise ValueError(
                f"{self.format.name}: a scale belongs to {block} elements in order, and those of axis {len(keys) - 1} "
                f"of shape {self.shape} have {size} each: they cannot be chosen; decode first, with dequant()"
            )
        outer = self.shape[: len(keys)]
        codes = self.codes.reshape(*outer, size // 2)[keys]
        scales = self.scales.reshape(*outer, size // block)[keys]
        return replace(self, shape=codes.shape[:-1] + shape, codes=codes, scales=scales)

    # ---- products: what cbquant._weights.Weights asks for ----

    def check_precision(self, precision: str) -> None:
        if precision in ("q8", "q16") and not self.format.integer:
            name = self.format.name
            raise ValueError(f"precision: {name} has no integer codes, it knows f32 and bf16 only, got {precision!r}")

    def matrix(self, number: int) -> Layout:
        return self.choose((number,))

    def multiply(
        self, x: NDArray[Any], dtype: str, out: NDArray[Any], out_dtype: str, m: int, precision: str, threads: int
    ) -> None:
        _core.matmul_planes(x, dtype, self.planes(), out, out_dtype, m, precision, threads)


def _is_all(key: Key, length: int) -> bool:
    return isinstance(key, slice) and key.indices(length) == (0, length, 1)


def bits(scales: NDArray[Any]) -> NDArray[Any]:
    """The array as C takes it: types of ml_dtypes as the unsigned integers of their bits."""
    return scales.view(f"u{scales.itemsize}") if scales.dtype.kind == "V" else scales
