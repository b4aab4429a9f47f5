"""How a weight is put together from tensors of a file, and what is said where that does not work."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbquant._unknown import unknown_name
from cbquant.files._info import TensorInfo
from cbquant.files._plain import NO_TAG
from cbquant.files._text import quoted
from cbquant.planes._tensor import PlanesTensor
from cbquant.tensor import QuantTensor

#: The bytes of a stored tensor, uint8 [bytes].
Reader = Callable[[TensorInfo], NDArray[np.uint8]]

#: Rows and columns under one scale; None is all of them.
Tile = tuple[int | None, int | None]

#: How NumPy reads scales; bfloat16 comes as its bits, E8M0 and E4M3 as bytes.
_SCALE_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E8M0": "u1", "F8_E4M3": "u1", "U8": "u1"}


class Misfit(ValueError):
    """The parts of the tensor `name` are those of a known convention, and do not fit together."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


class Note(NamedTuple):
    """The tensor `name` looks like a part of a convention that is not known; it is given as it is stored."""

    name: str
    sentence: str


class Nested(NamedTuple):
    """Absmax that are quantized themselves: table[absmax code] * absmax + offset, `block` codes to an absmax."""

    absmax: TensorInfo
    table: TensorInfo
    offset: float
    block: int


class Recipe(NamedTuple):
    """A weight: stored tensors, and the arguments of `QuantTensor.from_planes` that are not arrays.

    Attributes
    ----------
    name, format, shape : str, str, tuple of int
        The tensor.
    codes, scales : TensorInfo
        The parts; without scales all are 1.
    codes_shape, scales_shape : tuple of int
        What their bytes, or their numbers, are given as.
    tile, block, global_scale_is
        As for `from_planes`.
    global_scale : TensorInfo or None
        One float32.
    table : TensorInfo or None
        The numbers that codes stand for; they must be the format's own.
    nested : Nested or None
        Where `scales` are codes.
    others : tuple of TensorInfo
        Parts that are not read again.
    """

    name: str
    format: str
    shape: tuple[int, ...]
    codes: TensorInfo
    codes_shape: tuple[int, ...]
    scales: TensorInfo | None = None
    scales_shape: tuple[int, ...] = ()
    tile: Tile | None = None
    block: int = 64
    global_scale: TensorInfo | None = None
    global_scale_is: str = "multiplier"
    table: TensorInfo | None = None
    nested: Nested | None = None
    others: tuple[TensorInfo, ...] = ()

    @property
    def parts(self) -> tuple[TensorInfo, ...]:
        """The stored tensors that make it, codes first."""
        nested = () if self.nested is None else (self.nested.absmax, self.nested.table)
        found = (self.codes, self.scales, self.global_scale, self.table, *nested, *self.others)
        return tuple(part for part in found if part is not None)

    @property
    def info(self) -> TensorInfo:
        """The weight as one tensor of the file."""
        nbytes, names = sum(part.nbytes for part in self.parts), tuple(part.name for part in self.parts)
        codes = self.codes
        return TensorInfo(self.name, self.shape, self.format, NO_TAG, codes.offset, nbytes, codes.path, names)

    def absolute(self) -> Recipe:
        """The same for another process, whose working folder may be another."""

        def moved(part: TensorInfo) -> TensorInfo:
            return part._replace(path=Path(os.path.abspath(part.path)))

        def moved_or_none(part: TensorInfo | None) -> TensorInfo | None:
            return None if part is None else moved(part)

        nested = self.nested
        if nested is not None:
            nested = nested._replace(absmax=moved(nested.absmax), table=moved(nested.table))
        return self._replace(
            codes=moved(self.codes),
            scales=moved_or_none(self.scales),
            global_scale=moved_or_none(self.global_scale),
            table=moved_or_none(self.table),
            nested=nested,
            others=tuple(map(moved, self.others)),
        )


def build(recipe: Recipe, read: Reader) -> PlanesTensor:
    """The weight, over views of the parts' bytes.

    Raises
    ------
    ValueError
        A table that is not the format's own, a scale of the whole tensor that is not finite.
    """
    keywords: dict[str, Any] = {"shape": recipe.shape}
    if recipe.tile is not None:
        keywords["tile"] = recipe.tile
    if recipe.global_scale is not None:
        keywords["global_scale"] = _numbers(recipe.global_scale, read).reshape(())
        keywords["global_scale_is"] = recipe.global_scale_is
    if recipe.table is not None:
        _check_table(recipe.format, _numbers(recipe.table, read).reshape(-1), recipe.table.name)
        keywords["block"] = recipe.block
    if recipe.nested is not None:
        absmax, table, offset, block = recipe.nested
        keywords["nested"] = (_numbers(absmax, read), _numbers(table, read), offset, block)
    scales = np.float32(1) if recipe.scales is None else _numbers(recipe.scales, read).reshape(recipe.scales_shape)
    return QuantTensor.from_planes(recipe.format, read(recipe.codes).reshape(recipe.codes_shape), scales, **keywords)


def _numbers(part: TensorInfo, read: Reader) -> NDArray[Any]:
    """The numbers of a part that is no array of codes."""
    array: NDArray[Any] = read(part).view(_SCALE_DTYPES[dtype_of(part)]).reshape(part.shape)
    return array


def _check_table(fmt: str, table: NDArray[np.float32], name: str) -> None:
    codes = np.array([(2 * i) << 4 | (2 * i + 1) for i in range(8)], np.uint8)  # the first of two is in the high nibble
    own = QuantTensor.from_planes(fmt, codes, np.ones(1, np.float32)).dequant()
    if not np.array_equal(table, own):  # a zero of either sign
        worst = int(np.argmin(table == own))
        raise ValueError(f"{quoted(name)}: expected the numbers of {fmt}, got {table[worst]} in place {worst}")


def dtype_of(part: TensorInfo) -> str:
    """The dtype, as safetensors names it."""
    own = part.format.removeprefix(unknown_name(""))
    return part.format.upper() if own == part.format else own
