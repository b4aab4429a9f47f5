"""Tensors of a file as commands handle them: chosen by name, read as blocks, a slice at a time."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cbquant
from cbquant import _formats
from cbquant._formats import Format
from cbquant._unknown import is_unscaled_fp8, unknown_kind
from cbquant.cli.arguments import CommandError
from cbquant.cli.output import note
from cbquant.files import File, TensorInfo
from cbquant.planes._tensor import PlanesTensor

#: A slice is big enough for threads to pay, and small enough for the decoded values of a tensor of any size:
#: 32 MiB of float32.
_SLICE_ELEMENTS = 1 << 23

#: Of many notes on tensors this many are told.
_TOLD = 4


def choose(file: File, patterns: Sequence[str]) -> list[TensorInfo]:
    """The tensors of these names or shell patterns, in the file's order; all of them without any.

    Raises
    ------
    CommandError
        A name or pattern that no tensor has; close names are offered.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        # A name may hold brackets of its own: as it stands comes first.
        found = {pattern} if pattern in file else {name for name in file if fnmatchcase(name, pattern)}
        if not found:
            close = difflib.get_close_matches(pattern, file, n=3)
            hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
            raise CommandError(f"{file.path}: no tensor is named or matches {pattern!r}{hint}")
        chosen |= found
    return [tensor for name, tensor in file.infos.items() if not patterns or name in chosen]


def obstacle(file: File, tensor: TensorInfo) -> str:
    """Why a tensor cannot be decoded, to stand behind its name."""
    if tensor.name in file.notes:
        return f": {file.notes[tensor.name]}"
    if is_unscaled_fp8(tensor.format):
        return " is FP8 without scales; --unscaled-fp8 takes its codes for numbers"
    return f" is of the unknown {unknown_kind(tensor.format)}"


def tell_notes(file: File, tensors: Sequence[TensorInfo]) -> None:
    """Tell what the file has notes on, of many the first."""
    names = [tensor.name for tensor in tensors if tensor.name in file.notes]
    for name in names[:_TOLD]:
        note(f"tensor {name!r}: {file.notes[name]}")
    if len(names) > _TOLD:
        note(f"{len(names) - _TOLD:,} notes more; inspect --json has them all")


def raw_bytes(file: File, name: str) -> NDArray[np.uint8]:
    """The bytes of a tensor, uint8 [bytes], as a view of the mapped file."""
    tensor = file[name]
    array = tensor.raw if isinstance(tensor, cbquant.QuantTensor) else tensor
    return array.reshape(-1).view(np.uint8)


def slices(raw: NDArray[np.uint8], fmt: Format) -> Iterator[NDArray[np.uint8]]:
    """Whole blocks of `raw` [bytes], one slice after another."""
    step = _SLICE_ELEMENTS // fmt.elements * fmt.bytes
    return (raw[start : start + step] for start in range(0, raw.size, step))


def decode(raw: NDArray[np.uint8], fmt: Format, dtype: str, threads: int | None) -> Iterator[NDArray[Any]]:
    """The values of `raw` [bytes], a 1-D slice after another, in memory that the next slice is written to.

    The dtype "bfloat16" comes as uint16 bit patterns, which need no ml_dtypes.
    """
    elements = min(_SLICE_ELEMENTS, raw.size // fmt.bytes * fmt.elements)
    values = np.empty(elements, np.uint16 if dtype == "bfloat16" else dtype)
    for blocks in slices(raw, fmt):
        out = values[: blocks.size // fmt.bytes * fmt.elements]
        yield cbquant.dequant(blocks, fmt.name, dtype=dtype, out=out, threads=threads)


def decode_planes(tensor: PlanesTensor, dtype: str, threads: int | None) -> Iterator[NDArray[Any]]:
    """As `decode`, of codes beside scales."""
    f32 = _formats.get("f32")
    for rows, columns in _pieces(math.prod(tensor.shape[:-1]), tensor.shape[-1] if tensor.shape else 1):
        values = np.ascontiguousarray(tensor._layout.piece(rows, columns, threads))
        yield from decode(values.reshape(-1).view(np.uint8), f32, dtype, threads)


def _pieces(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of pieces, in order; of a row that is too long parts."""
    width = min(max(columns, 1), _SLICE_ELEMENTS)
    height = max(1, _SLICE_ELEMENTS // width)
    for row in range(0, rows if columns else 0, height):
        for column in range(0, columns, width):
            yield slice(row, min(row + height, rows)), slice(column, min(column + width, columns))
