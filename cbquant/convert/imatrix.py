"""Importance matrices: how much each column of a weight matters, measured by llama.cpp's ``llama-imatrix``.

Both kinds of files are read, GGUF and the older ``.dat``; what stands in them is in tools/imatrix/imatrix.cpp and
common/imatrix-loader.cpp of https://github.com/ggml-org/llama.cpp. A value is the mean of the squares of the
activations that met a column: a sum divided by a count.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cbquant.files import File, gguf
from cbquant.files import open as open_file
from cbquant.files._file import map_file
from cbquant.files._text import Subject

_SUMS, _COUNTS = ".in_sum2", ".counts"
_I32 = struct.Struct("<i")


class Imatrix(dict[str, NDArray[np.float32]]):
    """Names of tensors -> float32 ``[K]``, or ``[E, K]`` where each of E experts has its own.

    The older files do not tell E: theirs is always ``[E * K]``, and the shape of the tensor splits it.

    Attributes
    ----------
    path : Path or None
        The file that was read.
    datasets : tuple of str
        The files of text that it was measured on, as the file names them.
    chunks : int
        How many pieces of text were used; 0 where the file does not say.
    is_flat : bool
        Whether the file is of the older kind.
    """

    path: Path | None = None
    datasets: tuple[str, ...] = ()
    chunks: int = 0
    is_flat: bool = False


def read_imatrix(path: str | os.PathLike[str]) -> Imatrix:
    """Read an importance matrix.

    Parameters
    ----------
    path : str or os.PathLike
        A file that ``llama-imatrix`` wrote: GGUF, or the older kind.

    Returns
    -------
    Imatrix
        A dict from the names of tensors to float32 ``[K]`` or ``[E, K]``: sums divided by counts. An expert that
        was never chosen counts 1 for every column, as in llama.cpp.

    Raises
    ------
    OSError
        The file cannot be opened.
    ValueError
        It is no importance matrix, is cut, or holds sums or counts that are negative, NaN or infinite, or that do not
        belong together.

    Examples
    --------
    >>> import pathlib, struct, tempfile
    >>> from cbquant.convert import read_imatrix
    >>> entry = struct.pack("<i1sii2f", 1, b"w", 4, 2, 8.0, 2.0)  # name, 4 calls, 2 values
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "imatrix.dat")
    ...     _ = path.write_bytes(struct.pack("<i", 1) + entry)
    ...     read_imatrix(path)["w"].tolist()
    [2.0, 0.5]
    """
    path = Path(path)
    data = map_file(path)
    if gguf.recognises(data[: len(gguf.MAGIC)].tobytes()):
        with open_file(path) as file:
            return _from_gguf(file)
    return _from_dat(path, data)


def _from_gguf(file: File) -> Imatrix:
    kind = file.metadata.get("general.type", "imatrix")
    names = [name.removesuffix(_SUMS) for name in file if name.endswith(_SUMS)]
    if kind != "imatrix" or not names:
        raise ValueError(f"{file.path}: expected an importance matrix, with tensors NAME{_SUMS} and NAME{_COUNTS}")
    matrix = Imatrix({name: _means(file, name) for name in names})
    datasets, chunks = file.metadata.get("imatrix.datasets", ()), file.metadata.get("imatrix.chunk_count", 0)
    matrix.path = file.path
    matrix.datasets = tuple(map(str, datasets)) if isinstance(datasets, list) else ()
    matrix.chunks = chunks if isinstance(chunks, int) else 0
    return matrix


def _means(file: File, name: str) -> NDArray[np.float32]:
    sums, counts = _floats(file, name + _SUMS), _floats(file, name + _COUNTS).reshape(-1)
    columns = sums.shape[-1]
    if sums.size == 0 or counts.size not in (1, sums.size // columns):
        what = Subject("tensor", name)
        expected = f"1 count or one for each row of sums, {sums.shape}"
        raise ValueError(f"{file.path}: {what}: expected {expected}, got {counts.size}")
    per_count = sums.reshape(counts.size, -1)
    means = np.ones(per_count.shape, np.float32)
    with np.errstate(over="ignore"):  # an infinity is found below
        np.divide(per_count, counts[:, None], out=means, where=counts[:, None] > 0)
    rows = checked(means, file.path, name).reshape(-1, columns)
    return rows[0] if len(rows) == 1 else rows


def _floats(file: File, name: str) -> NDArray[np.float32]:
    if name not in file:
        raise ValueError(f"{file.path}: {Subject('tensor', name)} is missing")
    array = file[name]
    if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.ndim == 0:
        raise ValueError(f"{file.path}: {Subject('tensor', name)}: expected f32, got {file.infos[name].format}")
    return checked(array, file.path, name)


def checked(values: NDArray[np.float32], path: Path | str, name: str) -> NDArray[np.float32]:
    """`values`; a ValueError where one is negative, NaN or infinite. `path` begins the message."""
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        worst = float(values[wrong].reshape(-1)[0])
        raise ValueError(f"{path}: {Subject('tensor', name)}: expected finite numbers from 0 up, got {worst}")
    return values


class _Reader:
    """A position in the bytes of a ``.dat`` file that never moves past their end."""

    def __init__(self, path: Path, data: NDArray[np.uint8]) -> None:
        self.path, self._data, self._position = path, data.data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def take(self, nbytes: int, what: str) -> memoryview:
        if not 0 <= nbytes <= self.left:
            raise ValueError(
                f"{self.path}: at byte {self._position}: {what}: expected {nbytes} bytes, the file has {self.left} "
                "more; it is cut, or no importance matrix"
            )
        self._position += nbytes
        return self._data[self._position - nbytes : self._position]

    def number(self, what: str) -> int:
        (value,) = _I32.unpack(self.take(_I32.size, what))
        return int(value)

    def text(self, what: str) -> str:
        return str(self.take(self.number(what), what), "utf-8", "surrogateescape")


def _from_dat(path: Path, data: NDArray[np.uint8]) -> Imatrix:
    reader = _Reader(path, data)
    count = reader.number("number of entries")
    if count < 1:
        raise ValueError(f"{path}: expected an importance matrix, got a file of {count} entries")
    matrix = Imatrix()
    matrix.is_flat = True
    for number in range(count):
        name = reader.text(f"name of entry {number}")
        if name in matrix:
            raise ValueError(f"{path}: {Subject('tensor', name)} stands twice")
        matrix[name] = _entry(reader, name)
    if reader.left:
        matrix.chunks = reader.number("number of chunks")
    if reader.left:
        name = reader.text("name of the text")
        matrix.datasets = (name,) if name else ()
    if reader.left:
        raise ValueError(f"{path}: {reader.left} bytes are left over behind {count} entries")
    matrix.path = path
    return matrix


def _entry(reader: _Reader, name: str) -> NDArray[np.float32]:
    what = str(Subject("tensor", name))
    calls, count = reader.number(what), reader.number(what)
    if calls < 0:
        raise ValueError(f"{reader.path}: {what}: expected a number of calls from 0 up, got {calls}")
    if count < 1:
        raise ValueError(f"{reader.path}: {what}: expected values, got {count}")
    sums = np.frombuffer(reader.take(4 * count, what), "<f4")
    means = sums / np.float32(calls) if calls > 0 else sums.astype(np.float32)
    return checked(means, reader.path, name)
