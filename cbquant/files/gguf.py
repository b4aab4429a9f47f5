"""GGUF, versions 2 and 3, little-endian: header, metadata, tensor list, padding, tensor data.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The offsets of tensors should be multiples
of the alignment; one that is not is accepted, since no code here needs aligned data, and so are tensors that
overlap. Data outside of the file is an error; a tensor without elements has none, so its offset may be any.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbquant import _formats
from cbquant._arguments import as_shape, check_shape
from cbquant._unknown import unknown_name
from cbquant.files._file import File, map_file
from cbquant.files._info import TensorInfo
from cbquant.files._metadata import MAX_NAME, Cursor, Metadata, read_metadata
from cbquant.files._shards import merge, require_all, sibling_paths
from cbquant.files._text import Subject
from cbquant.files.conventions import Options

MAGIC = b"GGUF"
SUFFIX = ".gguf"

_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_DIMS = 4

#: Lengths and types of a tensor without a name and without dimensions.
_SMALLEST_INFO = 8 + 4 + 4 + 8


class _Part(NamedTuple):
    """One file of a model."""

    path: Path
    data: NDArray[np.uint8]
    metadata: Metadata
    infos: dict[str, TensorInfo]


class _RawInfo(NamedTuple):
    """A tensor as the header lists it; `position` is where, for messages."""

    name: str
    shape: tuple[int, ...]
    tag: int
    offset: int
    position: int


def recognises(head: bytes) -> bool:
    """Whether a file that begins with `head` is a GGUF file."""
    return head.startswith(MAGIC)


def read(path: Path, data: NDArray[np.uint8], options: Options) -> File:
    """Read a GGUF file of bytes `data` and, where it is a shard, its siblings: see `cbquant.open`."""
    opened = _read_part(path, data)
    siblings = _sibling_paths(opened)
    parts = [opened if sibling == path else _read_part(sibling, map_file(sibling)) for sibling in siblings]
    if len(parts) > 1:
        _check_shards(parts)
    infos = merge(part.infos for part in parts)
    return File(path, {part.path: part.data for part in parts}, parts[0].metadata, infos, options=options)


def _read_part(path: Path, data: NDArray[np.uint8]) -> _Part:
    cursor = Cursor(path, data.data)
    _check_magic_and_version(cursor)
    tensor_count, metadata_count = cursor.u64("tensor count"), cursor.u64("metadata count")
    metadata = read_metadata(cursor, metadata_count)
    raw_infos = _read_raw_infos(cursor, tensor_count)
    alignment = _alignment(cursor, metadata)
    data_begin = -(-cursor.position // alignment) * alignment
    return _Part(path, data, metadata, _resolve_infos(cursor, raw_infos, data_begin))


def _check_magic_and_version(cursor: Cursor) -> None:
    cursor.skip(len(MAGIC), "magic")
    magic = bytes(cursor.data[: len(MAGIC)])
    if magic != MAGIC:
        raise cursor.error(f"magic: expected {MAGIC!r}, got {magic!r}", 0)
    position = cursor.position
    version = cursor.u32("version")
    if version in _VERSIONS:
        return
    if version and version % 2**16 == 0:  # a small number with its bytes turned round
        raise cursor.error("a big-endian GGUF file: only little-endian files are read", position)
    known = " and ".join(map(str, _VERSIONS))
    raise cursor.error(f"GGUF version {version}: only versions {known} are read", position)


def _alignment(cursor: Cursor, metadata: Metadata) -> int:
    key = "general.alignment"
    if key not in metadata:
        return _DEFAULT_ALIGNMENT
    kind = metadata.type_of(key)
    if kind != "uint32":
        raise cursor.error(f"{key}: expected a uint32, got {kind}")
    alignment = metadata[key]
    if alignment == 0 or alignment & (alignment - 1):
        raise cursor.error(f"{key}: expected a power of two, got {alignment}")
    return int(alignment)


def _read_raw_infos(cursor: Cursor, tensor_count: int) -> list[_RawInfo]:
    cursor.need(tensor_count * _SMALLEST_INFO, f"{tensor_count} tensors")
    infos: dict[str, _RawInfo] = {}
    for number in range(tensor_count):
        position = cursor.position
        name = cursor.string(f"name of tensor {number}", MAX_NAME)
        what = Subject("tensor", name)
        if name in infos:
            raise cursor.error(f"{what}: the name stands twice", position)
        dims = cursor.u32(what)
        if dims > _MAX_DIMS:
            raise cursor.error(f"{what}: {dims} dimensions, at most {_MAX_DIMS} are allowed", position)
        # GGUF lists the innermost dimension first, NumPy last.
        shape = tuple(cursor.u64(what) for _ in range(dims))[::-1]
        infos[name] = _RawInfo(name, shape, cursor.u32(what), cursor.u64(what), position)
    return list(infos.values())


def _resolve_infos(cursor: Cursor, raw_infos: list[_RawInfo], data_begin: int) -> dict[str, TensorInfo]:
    """Give every tensor its format and its bytes, which must lie in the file."""
    size = len(cursor.data)
    begins = sorted({data_begin + raw.offset for raw in raw_infos if 0 not in raw.shape})
    infos = {}
    for raw in raw_infos:
        begin = data_begin + raw.offset
        fmt = _formats.by_tag(raw.tag)
        what = Subject("tensor", raw.name)
        try:
            nbytes = _room(raw.shape, begin, begins, size) if fmt is None else _nbytes(fmt, raw.shape)
        except ValueError as error:
            raise cursor.error(f"{what}: {error}", raw.position) from None
        if 0 not in raw.shape and begin + nbytes > size:
            reason = f"{what}: its {nbytes} bytes at {begin} end past the file, which has {size} bytes"
            raise cursor.error(reason, raw.position)
        name = unknown_name(raw.tag) if fmt is None else fmt.name
        infos[raw.name] = TensorInfo(raw.name, raw.shape, name, raw.tag, begin, nbytes, cursor.path)
    return infos


def _room(shape: tuple[int, ...], begin: int, begins: list[int], size: int) -> int:
    """The bytes from `begin` to the next tensor or the end of the file; ValueError where no array has that shape."""
    if 0 in as_shape(shape):
        return 0
    following = bisect_right(begins, begin)
    return (begins[following] if following < len(begins) else max(begin, size)) - begin


def _nbytes(fmt: _formats.Format, shape: tuple[int, ...]) -> int:
    """The bytes of a tensor; ValueError where its rows are not whole blocks or no array has that shape."""
    nbytes = math.prod(shape) // fmt.elements * fmt.bytes
    check_shape(fmt, shape, nbytes)
    return nbytes


def _sibling_paths(part: _Part) -> list[Path]:
    """The paths of all the shards of the model that `part` belongs to; its own alone where it is no shard."""
    paths = sibling_paths(part.path, SUFFIX)
    promised, total = _split_value(part, "split.count"), len(paths)
    if promised is not None and promised != total and max(promised, total) > 1:
        raise ValueError(
            f"{part.path}: split.count is {promised}, so the name must end in -NNNNN-of-{promised:05d}{SUFFIX}: "
            "the other shards are found by it"
        )
    require_all(paths, part.path)
    return paths


def _check_shards(parts: list[_Part]) -> None:
    """Compare what the shards say of themselves with what is there; a shard may say nothing."""
    tensors = sum(len(part.infos) for part in parts)
    for number, part in enumerate(parts):
        for key, found in (
            ("split.no", number),
            ("split.count", len(parts)),
            ("split.tensors.count", tensors),
        ):
            promised = _split_value(part, key)
            if promised not in (None, found):
                raise ValueError(f"{part.path}: {key} is {promised}, expected {found}")


def _split_value(part: _Part, key: str) -> int | None:
    if key not in part.metadata:
        return None
    kind = part.metadata.type_of(key)
    if not kind.removeprefix("u").startswith("int"):
        raise ValueError(f"{part.path}: {key}: expected an integer, got {kind}")
    return int(part.metadata[key])
