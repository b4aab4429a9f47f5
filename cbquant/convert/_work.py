"""Some rows of a tensor, or a part of a long one, decoded and encoded: the unit of work, wherever it is done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cbquant
from cbquant import _formats
from cbquant.convert._rules import PLAIN_TARGETS
from cbquant.files._file import map_file
from cbquant.files._info import TensorInfo
from cbquant.files._text import Subject
from cbquant.files.conventions import Recipe, build

_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}

_EXPONENT_OF_BF16 = 0x7F80


class EncodingError(ValueError):
    """The source cannot be encoded, here or elsewhere."""


class Piece(NamedTuple):
    """Rows of a tensor: where they are, and what is to be made of them. Small, so that it can be sent anywhere.

    Attributes
    ----------
    sizes : tuple of (str, int)
        The files, reachable under these paths where the work is done, and their numbers of bytes; the tensor's first.
    name, shape : str, tuple of int
        The tensor.
    offset, nbytes : int
        Where the rows lie in the file; of codes beside scales where all codes begin, and the rows' share of the bytes.
    first, rows : int
        The first of them, counted over all dimensions but the last; how many there are.
    column, columns : int
        The first of their columns; how many there are. Where they are not all, there is one row.
    source, target : str
        Format of the file, and format to encode; the same: the bytes are taken as they are.
    recipe : Recipe or None
        How the tensor is put together, where its codes and scales are tensors of their own.
    weights : ndarray or None
        The importance of the columns, float32 [columns].
    method, nonfinite, threads
        As for `cbquant.quantize`.
    version : str
        Of the cbquant that planned the work.
    """

    sizes: tuple[tuple[str, int], ...]
    name: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    first: int
    rows: int
    column: int
    columns: int
    source: str
    target: str
    recipe: Recipe | None
    weights: NDArray[np.float32] | None
    method: str
    nonfinite: str
    threads: int | None
    version: str

    @property
    def nbytes_after(self) -> int:
        """The bytes of the rows in the format to encode."""
        fmt = _formats.get(self.target)
        return self.rows * self.columns // fmt.elements * fmt.bytes

    def __str__(self) -> str:
        columns = f", columns {self.column} to {self.column + self.columns - 1}" if self.rows == 1 else ""
        return f"{Subject('tensor', self.name)}, rows {self.first} to {self.first + self.rows - 1}{columns}"


def encode(piece: Piece) -> NDArray[np.uint8]:
    """The bytes of the rows in the format asked for, uint8 [bytes].

    Raises
    ------
    OSError
        The file cannot be opened under its path here.
    ValueError
        The file or cbquant is another here; weights that cannot be encoded, with their place in the tensor.
    """
    if piece.version != cbquant.__version__:
        raise ValueError(f"cbquant is {cbquant.__version__} here, and {piece.version} where the work was planned")
    maps = {path: map_file(Path(path)) for path, _ in piece.sizes}
    for path, size in piece.sizes:
        if maps[path].size != size:
            raise ValueError(f"{path}: expected a file of {size} bytes, got one of {maps[path].size}")
    if piece.recipe is not None:
        raw = _put_together(piece, piece.recipe, maps)
        piece = piece._replace(source="f32")
    else:
        raw = maps[piece.sizes[0][0]][piece.offset : piece.offset + piece.nbytes]
        if piece.source == piece.target:
            return raw
    if piece.target in PLAIN_TARGETS:
        return _convert(piece, raw)
    x = _values(piece, raw)
    try:
        blocks = cbquant.quantize(
            x, piece.target, piece.weights, method=piece.method, nonfinite=piece.nonfinite, threads=piece.threads
        )
    except ValueError as error:
        with np.errstate(over="ignore"):
            finite = np.isfinite(x.astype(np.float32, copy=False))
        raise _located(piece, x, finite, str(error)) from error
    return blocks.reshape(-1)


def checked_result(piece: Piece, result: Any) -> NDArray[np.uint8]:
    """What an executor gave for a piece, once it can be its bytes: an array uint8 or bytes, as many as there must be.

    Raises
    ------
    RuntimeError
        It is something else.
    """
    data = np.frombuffer(result, np.uint8) if isinstance(result, bytes) else result
    expected = piece.nbytes_after
    if isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.size == expected:
        return data.reshape(-1)
    got = f"{data.size} of {data.dtype}" if isinstance(data, np.ndarray) else type(data).__name__
    raise RuntimeError(f"executor: {piece}: expected {expected} bytes, uint8, got {got}")


def _put_together(piece: Piece, recipe: Recipe, maps: Mapping[str, NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """The decoded rows of codes beside scales, as the bytes of float32."""

    def content(part: TensorInfo) -> NDArray[np.uint8]:
        return maps[str(part.path)][part.offset : part.offset + part.nbytes]

    try:
        tensor = build(recipe, content)
    except ValueError as error:
        raise EncodingError(f"{Subject('tensor', piece.name)}: {error}") from error
    rows, columns = (slice(begin, begin + n) for begin, n in ((piece.first, piece.rows), (piece.column, piece.columns)))
    values = tensor._layout.piece(rows, columns, piece.threads)
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def _values(piece: Piece, raw: NDArray[np.uint8]) -> NDArray[Any]:
    """The decoded rows, float32 [rows, columns], or float64 as it is: the encoder rounds it once."""
    if piece.source in ("f32", "f64"):
        dtype = np.dtype("<f4" if piece.source == "f32" else "<f8")
        return np.require(raw.view(dtype).reshape(piece.rows, piece.columns), requirements="A")
    return cbquant.dequant(raw, piece.source, (piece.rows, piece.columns), threads=piece.threads)


def _convert(piece: Piece, raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The rows as plain numbers, rounded to float32 and from there to their type."""
    is_bf16 = piece.target == "bf16"
    dtype = np.dtype(np.uint16 if is_bf16 else _DTYPES[piece.target])
    out = np.empty((piece.rows, piece.columns), dtype)
    cbquant.dequant(raw, piece.source, out.shape, _DTYPES[piece.target], out, piece.threads)
    if piece.nonfinite == "raise":
        finite = (out & _EXPONENT_OF_BF16) != _EXPONENT_OF_BF16 if is_bf16 else np.isfinite(out)
        if not finite.all():
            raise _located(piece, _values(piece, raw), finite, f"past the range of {piece.target}")
    return out.reshape(-1).view(np.uint8)


def _located(piece: Piece, x: NDArray[Any], finite: NDArray[np.bool_], reason: str) -> EncodingError:
    """The error for rows `x`, with the place in the tensor of the first value that is to blame, if one is."""
    places = np.argwhere(~finite)
    if len(places) == 0:
        return EncodingError(f"{piece}: {reason}")
    row, column = (int(number) for number in places[0])
    leading = np.unravel_index(piece.first + row, piece.shape[:-1] or (1,))
    index = (*map(int, leading), piece.column + column)
    value = float(x[row, column])
    if not np.isfinite(value):
        reason = "expected finite numbers"
    return EncodingError(f"{Subject('tensor', piece.name)}: {value} at {index} of shape {piece.shape}: {reason}")


def try_encoder(target: str, method: str, nonfinite: str) -> None:
    """Raise what `cbquant.quantize` has against the format or the method, before there is any work."""
    if target in PLAIN_TARGETS:
        return
    fmt = _formats.get(target)
    weights = np.ones(fmt.elements, np.float32) if fmt.needs_imatrix else None
    cbquant.quantize(np.zeros((1, fmt.elements), np.float32), target, weights, method=method, nonfinite=nonfinite)
