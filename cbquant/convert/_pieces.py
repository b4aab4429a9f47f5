"""The work on a file, cut into pieces that need little memory."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import cbquant
from cbquant import _formats
from cbquant.convert._partial import Span
from cbquant.convert._plan import Planned
from cbquant.convert._work import Piece
from cbquant.files import TensorInfo, _plain
from cbquant.files.conventions import Recipe

#: With an importance matrix their weights depend on the mean square of the whole row, as in ggml.
_WHOLE_ROWS = ("q4_0", "q4_1", "q5_0", "q5_1")


class Options(NamedTuple):
    """As for `cbquant.quantize`."""

    method: str
    nonfinite: str
    threads: int | None


class _Part(NamedTuple):
    """Some columns of some rows of a matrix."""

    matrix: int
    first: int
    rows: int
    column: int
    columns: int


def make_pieces(
    tensors: Sequence[Planned],
    offsets: Sequence[int],
    options: Options,
    sizes: Mapping[Path, int],
    recipes: Mapping[str, Recipe],
    most: int,
) -> tuple[list[Piece], list[Span]]:
    """All the work, in the order of the file, and where its results go.

    `sizes` are those of the files, `recipes` say how weights are put together, `most` is the elements of a piece.
    """
    pieces, spans = [], []
    for tensor, begin in zip(tensors, offsets, strict=True):
        info, fmt = tensor.info, _formats.get(tensor.format)
        total = info.shape[-1] if info.shape else 1
        recipe = recipes[info.name].absolute() if info.parts else None
        paths = [info.path] if recipe is None else [part.path for part in recipe.parts]
        places = tuple((path, sizes[Path(path)]) for path in dict.fromkeys(map(os.path.abspath, paths)))
        for part in _parts(tensor, most):
            before, elements = part.first * total + part.column, part.rows * part.columns
            piece = Piece(
                sizes=places,
                name=info.name,
                shape=info.shape,
                offset=info.offset if recipe else info.offset + _nbytes(info, before),
                nbytes=_nbytes(info, elements),
                first=part.first,
                rows=part.rows,
                column=part.column,
                columns=part.columns,
                source=info.format,
                target=tensor.format,
                recipe=recipe,
                weights=_weights(tensor, part),
                method=options.method,
                nonfinite=options.nonfinite,
                threads=options.threads,
                version=cbquant.__version__,
            )
            pieces.append(piece)
            spans.append(Span(begin + before // fmt.elements * fmt.bytes, piece.nbytes_after))
    return pieces, spans


def _nbytes(info: TensorInfo, elements: int) -> int:
    """The bytes that some elements take, in whole blocks; of codes beside scales a share of them all."""
    if info.parts:
        return info.nbytes * elements // math.prod(info.shape)
    source = _plain.format_of(info.format)
    return elements // source.elements * source.bytes


def _parts(tensor: Planned, most: int) -> Iterator[_Part]:
    info, weights = tensor.info, tensor.weights
    columns = info.shape[-1] if info.shape else 1
    rows = math.prod(info.shape[:-1]) if columns else 0
    if rows == 0:
        return
    width = _width(tensor, columns, most)
    # Each expert has weights of its own, so no piece reaches into the next.
    matrix_rows = rows // len(weights) if weights is not None else rows
    height = min(matrix_rows, max(1, most // columns))
    for matrix in range(rows // matrix_rows):
        end = (matrix + 1) * matrix_rows
        for first in range(matrix * matrix_rows, end, height):
            for column in range(0, columns, width):
                yield _Part(matrix, first, min(height, end - first), column, min(width, columns - column))


def _width(tensor: Planned, columns: int, most: int) -> int:
    """The columns of a piece: all of them, or of long rows some blocks."""
    if columns <= most or (tensor.weights is not None and tensor.format in _WHOLE_ROWS):
        return columns
    source = 1 if tensor.info.parts else _plain.format_of(tensor.info.format).elements
    unit = math.lcm(source, _formats.get(tensor.format).elements)
    return max(1, most // unit) * unit


def _weights(tensor: Planned, part: _Part) -> NDArray[np.float32] | None:
    if tensor.weights is None:
        return None
    return tensor.weights[part.matrix, part.column : part.column + part.columns]
