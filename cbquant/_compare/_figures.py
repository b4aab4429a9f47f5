"""The figures of a pair of tensors, from sums over pieces of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbquant._compare._operand import Operand
from cbquant._compare._result import TensorComparison
from cbquant._compare._scaled import Scaled, largest, scale_of
from cbquant._unknown import is_unknown, unknown_kind

MAX_BLOCK = 1 << 20

#: Elements of a piece: in float64 a few of them fit the second-level cache.
_PIECE = 1 << 17

#: Bytes that are compared at once.
_BYTES = 1 << 22

Floats = NDArray[np.float64]
#: Called with the part of a tensor that is done.
Advance = Callable[[float], None]


def compare_pair(
    name: str, a: Operand | str | None, b: Operand | str | None, block: int, advance: Advance
) -> TensorComparison:
    """The row of a tensor; a side is text where it cannot be read, and None where it lacks the tensor."""
    first, second = (side if isinstance(side, Operand) else None for side in (a, b))
    shown = first or second
    row = TensorComparison(
        name,
        shown.shape if shown else None,
        first.format if first else None,
        second.format if second else None,
    )
    obstacle = _obstacle(a, b)
    if obstacle or first is None or second is None:
        return row._replace(note=obstacle)
    if "other" in (first.kind, second.kind):
        return _compare_bytes(row, first, second)
    if first.kind == second.kind == "whole":
        return _compare_whole(row, first, second, advance)
    sums = Sums(first.columns, block)
    for rows, columns in _pieces(first, block):
        sums.add(first.piece(rows, columns), second.piece(rows, columns), rows.start, columns.start)
        advance(_part(first, rows, columns))
    return sums.fill(row)


def _obstacle(a: Operand | str | None, b: Operand | str | None) -> str:
    """What stands against comparing."""
    for side, name, other in ((a, "a", "b"), (b, "b", "a")):
        if side is None:
            return f"only in {other}"
        if isinstance(side, str):
            return f"{name}: {side}"
    if isinstance(a, Operand) and isinstance(b, Operand) and a.shape != b.shape:
        return f"shapes differ: {a.shape} and {b.shape}"
    return ""


def _pieces(operand: Operand, block: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of pieces that hold whole blocks, in order."""
    rows, columns = operand.rows, operand.columns
    if rows * columns == 0:
        return
    width = columns if columns <= _PIECE else max(1, _PIECE // block) * block
    height = max(1, _PIECE // width)
    for row in range(0, rows, height):
        for column in range(0, columns, width):
            yield slice(row, min(row + height, rows)), slice(column, min(column + width, columns))


def _part(operand: Operand, rows: slice, columns: slice) -> float:
    """How much of a tensor is done after a piece."""
    before: int = rows.start * operand.columns + (rows.stop - rows.start) * columns.stop
    return before / (operand.rows * operand.columns)


def _compare_bytes(row: TensorComparison, a: Operand, b: Operand) -> TensorComparison:
    """Of a type that cannot be decoded the bytes can still be equal."""
    what = " and ".join(dict.fromkeys(_kind(side.format) for side in (a, b) if side.kind == "other"))
    if a.format != b.format or a.array.dtype.hasobject:
        return row._replace(note=f"not compared: {what}")
    x, y = (np.ascontiguousarray(side.array).reshape(-1).view(np.uint8) for side in (a, b))
    same = x.size == y.size and all(
        np.array_equal(x[start : start + _BYTES], y[start : start + _BYTES]) for start in range(0, x.size, _BYTES)
    )
    return row._replace(differing=0 if same else None, note=f"{what}: the bytes {'are equal' if same else 'differ'}")


def _kind(fmt: str) -> str:
    return f"the unknown {unknown_kind(fmt)}" if is_unknown(fmt) else f"dtype {fmt}"


def _compare_whole(row: TensorComparison, a: Operand, b: Operand, advance: Advance) -> TensorComparison:
    differing = 0
    for rows, columns in _pieces(a, 1):
        differing += int(np.count_nonzero(a.piece(rows, columns) != b.piece(rows, columns)))
        advance(_part(a, rows, columns))
    count = a.rows * a.columns
    note = f"whole numbers: {f'{differing:,} of {count:,} differ' if differing else 'equal'}"
    return row._replace(differing=differing, note=note)


class Sums:
    """What the figures of a tensor with rows of so many columns are made of.

    >>> sums = Sums(columns=4, block=2)
    >>> sums.add(np.ones((1, 4)), np.array([[1.0, 1.0, 1.0, 2.0]]), 0, 0)
    >>> row = sums.fill(TensorComparison("x", (1, 4), "f64", "f64"))
    >>> row.rmse, row.relative_error, row.worst_block, row.differing
    (0.5, 0.5, 1, 1)
    """

    def __init__(self, columns: int, block: int) -> None:
        self._block, self._per_row = block, -(-columns // block)
        self._count = self._differing = 0
        self._nonfinite = [0, 0]
        self._aa = self._bb = self._ab = self._dd = Scaled()
        self._worst = (Scaled(), -1)  # mean square error of a block, and its number

    def add(self, a: NDArray[np.generic], b: NDArray[np.generic], row: int, column: int) -> None:
        """Take in a piece, ``[rows, columns]``, whose first element is at (row, column)."""
        with np.errstate(all="ignore"):
            x, y = a.astype(np.float64), b.astype(np.float64)
            difference = x - y
            counts, magnitude = self._counts(difference.shape), largest(difference)
            self._differing += _count_rounded(a, b, difference)
            if math.isfinite(magnitude):
                self._differing += int(np.count_nonzero(difference))
            else:
                counts = self._leave_out(x, y)
                difference = x - y
                magnitude = largest(difference)
            by_x, by_y, by_d = scale_of(largest(x)), scale_of(largest(y)), scale_of(magnitude)
            x, y, difference = (_divided(part, by) for part, by in ((x, by_x), (y, by_y), (difference, by_d)))
            squares = self._products(difference, difference)
            self._count += int(counts.sum())
            self._dd = self._dd.plus(Scaled(float(squares.sum()), 2 * by_d))
            self._aa = self._aa.plus(Scaled(float(self._products(x, x).sum()), 2 * by_x))
            self._bb = self._bb.plus(Scaled(float(self._products(y, y).sum()), 2 * by_y))
            self._ab = self._ab.plus(Scaled(float(self._products(x, y).sum()), by_x + by_y))
        self._note_worst(squares / np.maximum(counts, 1), 2 * by_d, row, column)

    def _products(self, x: Floats, y: Floats) -> Floats:
        """The sum of products over each block, ``[rows, blocks]``."""
        rows, columns = x.shape
        whole = columns // self._block * self._block
        shape = (rows, whole // self._block, self._block)
        sums: Floats = np.einsum("rbi,rbi->rb", x[:, :whole].reshape(shape), y[:, :whole].reshape(shape))
        if whole == columns:
            return sums
        rest: Floats = np.einsum("ri,ri->r", x[:, whole:], y[:, whole:])
        return np.concatenate([sums, rest[:, None]], axis=1)

    def _counts(self, shape: tuple[int, ...]) -> Floats:
        """The elements of each block, ``[rows, blocks]``."""
        starts = np.arange(0, shape[1], self._block)
        return np.broadcast_to(np.minimum(self._block, shape[1] - starts).astype(np.float64), (shape[0], len(starts)))

    def _leave_out(self, x: Floats, y: Floats) -> Floats:
        """Put zeros where either is NaN or infinite; count them, and what is left of each block."""
        finite_x, finite_y = np.isfinite(x), np.isfinite(y)
        self._nonfinite[0] += int(np.count_nonzero(~finite_x))
        self._nonfinite[1] += int(np.count_nonzero(~finite_y))
        self._differing += int(np.count_nonzero((x != y) & ~(np.isnan(x) & np.isnan(y))))
        finite = finite_x & finite_y
        x[~finite] = y[~finite] = 0
        kept = finite.astype(np.float64)
        return self._products(kept, kept)

    def _note_worst(self, means: Floats, exponent: int, row: int, column: int) -> None:
        place = int(np.argmax(means))
        worst = Scaled(float(means.reshape(-1)[place]), exponent)
        if worst.rank() > self._worst[0].rank():
            i, j = divmod(place, means.shape[1])
            self._worst = worst, (row + i) * self._per_row + column // self._block + j

    def fill(self, row: TensorComparison) -> TensorComparison:
        """The row with its figures."""
        in_a, in_b = self._nonfinite
        row = row._replace(differing=self._differing, nonfinite_a=in_a, nonfinite_b=in_b, note=self._note())
        if self._count == 0 or not math.isfinite(self._dd.value):
            return row
        row = row._replace(
            rmse=self._dd._replace(value=self._dd.value / self._count).root().plain(),
            relative_error=self._dd.root().over(self._aa.root()),
            cosine=self._cosine(),
        )
        worst, number = self._worst
        if number < 0:
            return row
        line, place = divmod(number, self._per_row)
        shape = row.shape or ()
        leading = np.unravel_index(line, shape[:-1]) if len(shape) > 1 else ()
        return row._replace(
            worst_block=number,
            worst_at=(*map(int, leading), place * self._block)[: len(shape)],
            worst_error=worst.root().over(self._aa._replace(value=self._aa.value / self._count).root()),
        )

    def _note(self) -> str:
        if any(self._nonfinite):
            in_a, in_b = self._nonfinite
            return f"NaN or infinite: {in_a:,} in a, {in_b:,} in b; left out"
        if self._count == 0:
            return "no elements"
        if not math.isfinite(self._dd.value):
            return "the differences are beyond the range of float64"
        return ""

    def _cosine(self) -> float | None:
        a, b = self._aa.root(), self._bb.root()
        if a.value == 0 or b.value == 0:
            return None
        if self._dd.value == 0:
            return 1.0
        lengths = Scaled(a.value * b.value, a.exponent + b.exponent)
        return max(-1.0, min(1.0, self._ab.over(lengths)))


def _divided(x: Floats, exponent: int) -> Floats:
    return np.ldexp(x, -exponent) if exponent else x


def _count_rounded(a: NDArray[np.generic], b: NDArray[np.generic], difference: Floats) -> int:
    """How many elements differ though their difference is 0: whole numbers that float64 has no place for."""
    if not any(side.dtype.kind in "iu" and side.dtype.itemsize == 8 for side in (a, b)):
        return 0
    return int(np.count_nonzero((difference == 0) & (_is_rounded(a) | _is_rounded(b))))


def _is_rounded(x: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether numbers of 64 bits have more than the 53 digits of float64 from their first 1 to their last."""
    if x.dtype.kind not in "iu" or x.dtype.itemsize < 8:
        return np.zeros(x.shape, np.bool_)
    size = np.where(x < 0, np.negative(x).astype(np.uint64), x.astype(np.uint64))  # right for -2^63 too
    last, high = size & (~size + np.uint64(1)), size >> np.uint64(53)
    rounded: NDArray[np.bool_] = (high > 0) & (high >= last)
    return rounded
