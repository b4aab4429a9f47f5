"""A model file as a read-only mapping; what its container is, the reader modules know."""

from __future__ import annotations

import errno
import html
import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from cbquant._unknown import is_unknown
from cbquant.files import _plain
from cbquant.files._info import TensorInfo
from cbquant.files._path import naming
from cbquant.files._text import Subject, quoted
from cbquant.files.conventions import Options, Weights, build
from cbquant.tensor import QuantTensor, plain_view

#: Tensors shown at either end of a longer list.
_SHOWN = 12

_COLUMNS = ("name", "shape", "format", "bytes", "offset")


def map_file(path: Path) -> NDArray[np.uint8]:
    """The bytes of a regular file as a read-only uint8 array on a memory map; it lives as long as its last view."""
    # Without O_NONBLOCK, which Windows lacks, a FIFO would be waited for. Python sets O_CLOEXEC.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "expected a regular file", str(path))
        if status.st_size == 0:  # cannot be mapped
            return np.empty(0, np.uint8)
        with naming(path):
            mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)
    return np.frombuffer(mapped, np.uint8)


def _tensor(data: NDArray[np.uint8], info: TensorInfo) -> NDArray[Any] | QuantTensor:
    if is_unknown(info.format):
        return QuantTensor._wrap(data, info.format, info.shape)
    array = _plain.view(data, info.format, info.shape)
    if array is None:
        array = plain_view(data, info.format, info.shape)
    return QuantTensor(data, info.format, info.shape) if array is None else array


@final
class Stored(Mapping[str, "np.ndarray | QuantTensor"]):
    """The tensors of an open file as they are stored: codes and scales of a quantized weight are tensors of their own.

    Attributes
    ----------
    infos : Mapping
        From names to `TensorInfo`.
    """

    def __init__(self, file: File, infos: Mapping[str, TensorInfo]) -> None:
        self._file, self.infos = file, MappingProxyType(dict(infos))

    def __getitem__(self, name: str) -> NDArray[Any] | QuantTensor:
        if name not in self.infos:
            raise KeyError(f"{name!r}: no such tensor in {self._file.path}")
        return _tensor(self._file._bytes(self.infos[name]), self.infos[name])

    def __contains__(self, name: object) -> bool:
        return name in self.infos

    def __iter__(self) -> Iterator[str]:
        return iter(self.infos)

    def __len__(self) -> int:
        return len(self.infos)

    __eq__ = object.__eq__  # as for `File`
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{self._file.path}: {len(self)} tensors as they are stored"


@final
class File(Mapping[str, "np.ndarray | QuantTensor"]):
    """An open model file: a read-only mapping from tensor names to views of the memory-mapped file.

    Made by `cbquant.open`. ``file[name]`` is a read-only ndarray (f32, f16, f64, integers) or a `QuantTensor`
    (bf16, block formats, codes beside scales, unknown types), made anew at each access, which costs microseconds
    and copies nothing, but for absmax of bitsandbytes that are quantized themselves.

    Attributes
    ----------
    path : Path
        The path that was opened.
    paths : tuple of Path
        All the files of the model: the shards in their order.
    metadata : Mapping
        Key-value pairs, those of the first shard: see `Metadata`; strings in the case of safetensors.
    infos : Mapping
        From names to `TensorInfo`.
    stored : Stored
        The tensors under the names that the file has: those of codes and of scales too.
    notes : Mapping
        Names and sentences: tensors that are stored in a way which looks like one of a quantized weight, and is not
        known or not whole.
    """

    def __init__(
        self,
        path: Path,
        maps: dict[Path, NDArray[np.uint8]],
        metadata: Mapping[str, Any],
        stored: dict[str, TensorInfo],
        weights: Weights | None = None,
        options: Options | None = None,
    ) -> None:
        self.path = path
        self.paths = tuple(maps)
        self._weights = Weights(stored, {}, {}, {}) if weights is None else weights
        self._options = options or Options()
        self.infos: Mapping[str, TensorInfo] = MappingProxyType(self._weights.infos)
        self.notes: Mapping[str, str] = MappingProxyType(self._weights.notes)
        self.stored = Stored(self, stored)
        self._open: tuple[dict[Path, NDArray[np.uint8]], Mapping[str, Any]] | None = (maps, metadata)

    def _opened(self) -> tuple[dict[Path, NDArray[np.uint8]], Mapping[str, Any]]:
        if self._open is None:
            raise ValueError(f"{self.path}: the file is closed")
        return self._open

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._opened()[1]

    @property
    def closed(self) -> bool:
        return self._open is None

    def _bytes(self, info: TensorInfo) -> NDArray[np.uint8]:
        """The bytes of a stored tensor."""
        maps, _ = self._opened()
        return maps[info.path][info.offset : info.offset + info.nbytes]

    def __getitem__(self, name: str) -> NDArray[Any] | QuantTensor:
        self._opened()
        if name not in self.infos:
            raise KeyError(f"{name!r}: no such tensor in {self.path}")
        misfit, recipe = self._weights.misfits.get(name), self._weights.recipes.get(name)
        if misfit is not None:
            raise ValueError(f"{self.path}: {Subject('tensor', name)}: {misfit}")
        if recipe is None:
            return _tensor(self._bytes(self.infos[name]), self.infos[name])
        try:
            return build(recipe, self._bytes)
        except ValueError as error:
            raise ValueError(f"{self.path}: {Subject('tensor', name)}: {error}") from None

    def __contains__(self, name: object) -> bool:
        return name in self.infos

    def __iter__(self) -> Iterator[str]:
        return iter(self.infos)

    def __len__(self) -> int:
        return len(self.infos)

    # Mapping would compare all the tensors, and make a file unhashable.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def close(self) -> None:
        """Drop this object's hold on the memory map.

        Arrays, tensors and metadata taken before stay valid: each keeps the map alive, and the map goes with
        the last of them. Tensors and metadata can no longer be asked for; `infos` stays. Closing twice is
        allowed.
        """
        self._open = None

    def __enter__(self) -> File:
        self._opened()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # By path: the default would copy every byte of the model into the pickle.
        from cbquant.files import open

        self._opened()
        return partial(open, **self._options._asdict()), (self.path,)

    def _title(self) -> str:
        nbytes = sum(info.nbytes for info in self.infos.values())
        state = " (closed)" if self.closed else f", {len(self.metadata)} metadata keys"
        shards = f" in {len(self.paths)} shards" if len(self.paths) > 1 else ""
        notes = f", {len(self.notes)} with notes" if self.notes else ""
        return f"{self.path}: {len(self)} tensors, {nbytes:,} bytes{shards}{state}{notes}"

    def _table(self) -> list[tuple[str, ...]]:
        """The rows to print; of a long list its two ends, with a row of dots between them."""
        infos = list(self.infos.values())
        is_long = len(infos) > 2 * _SHOWN
        if is_long:
            infos[_SHOWN:-_SHOWN] = []
        rows: list[tuple[str, ...]] = [
            (quoted(i.name)[1:-1], str(i.shape), i.format, f"{i.nbytes:,}", f"{i.offset:,}") for i in infos
        ]
        if is_long:
            rows.insert(_SHOWN, ("...",) * len(_COLUMNS))
        return rows

    def __repr__(self) -> str:
        rows = [_COLUMNS, *self._table()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([self._title(), *lines])

    def _repr_html_(self) -> str:
        def row(cells: tuple[str, ...], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(row(cells, "td") for cells in self._table())
        caption, head = html.escape(self._title()), row(_COLUMNS, "th")
        return f"<table><caption>{caption}</caption><thead>{head}</thead><tbody>{body}</tbody></table>"
