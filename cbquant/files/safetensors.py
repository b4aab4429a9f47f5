"""safetensors: the length of a header, the header (JSON), the bytes of the tensors without gaps.

Format: https://github.com/huggingface/safetensors#format. What that page rules out is an error here too: gaps,
tensors that overlap, bytes behind the last one. Nothing that the header claims is believed before it is compared
with the bytes that are there.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbquant._arguments import as_shape
from cbquant._unknown import unknown_name
from cbquant.files._file import File, map_file
from cbquant.files._info import TensorInfo
from cbquant.files._plain import NO_TAG, format_of
from cbquant.files._shards import merge, require_all, sibling_paths
from cbquant.files._text import Subject, quoted
from cbquant.files.conventions import Options, recognise

SUFFIX = ".safetensors"

#: Bytes of a header, and here of an index too: the limit of the safetensors library.
MAX_HEADER = 100_000_000

_LENGTH_BYTES = 8
_MAX_DIMS = 32
_METADATA = "__metadata__"

#: dtype -> format, for those that are numbers as they stand.
_FORMATS = {
    "BOOL": "bool",
    **{f"U{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
    **{f"I{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"f{bits}" for bits in (16, 32, 64)},
    "BF16": "bf16",
}

#: Bits of an element of the dtypes that are listed only.
_OTHER_BITS = {
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
    "C64": 64,
}

_DTYPE_NAME = re.compile(r"[A-Za-z0-9_]{1,32}")


def recognises(head: bytes) -> bool:
    """Whether a file that begins with `head` is one of safetensors: a small number and a brace."""
    return head[4:9] == b"\0\0\0\0{"


def recognises_index(head: bytes) -> bool:
    """Whether a file that begins with `head` may be the index of a sharded model, which is JSON."""
    return head.lstrip(b" \t\r\n").startswith(b"{")


def read(path: Path, data: NDArray[np.uint8], options: Options) -> File:
    """Read a file of bytes `data` and, where it is a shard, its siblings: see `cbquant.open`."""
    paths = sibling_paths(path, SUFFIX)
    require_all(paths, path)
    return _read_parts(path, {part: data if part == path else map_file(part) for part in paths}, options)


def read_index(path: Path, data: NDArray[np.uint8], options: Options) -> File:
    """Read the files that an index, ``model.safetensors.index.json``, names: see `cbquant.open`."""
    if data.size > MAX_HEADER:
        raise ValueError(f"{path}: an index of {data.size} bytes, at most {MAX_HEADER} are read")
    places = _places(path, _json(path, "index", data.tobytes()))
    paths = [path.with_name(name) for name in sorted(set(places.values()))]
    require_all(paths, path)
    file = _read_parts(path, {part: map_file(part) for part in paths}, options)
    stored = file.stored.infos
    for name, place in places.items():
        if name not in stored or stored[name].path.name != place:
            raise ValueError(f"{path}: {Subject('tensor', name)} does not stand in {quoted(place)}")
    return file


def _places(path: Path, index: Any) -> dict[str, str]:
    """The weight map of an index: tensor -> name of a file in the same folder."""
    places = index.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ValueError(f"{path}: expected an index of safetensors files, with a weight_map")
    for name, place in places.items():
        # A path could lead anywhere, and read what was not meant.
        if not isinstance(place, str) or place in ("", ".", "..") or "/" in place or "\\" in place or "\0" in place:
            got = quoted(str(place))
            raise ValueError(f"{path}: {Subject('tensor', name)}: expected the name of a file, got {got}")
    return places


def _read_parts(path: Path, maps: dict[Path, NDArray[np.uint8]], options: Options) -> File:
    parts = [_read_part(part, data) for part, data in maps.items()]
    stored = merge(infos for _, infos in parts)

    def content(info: TensorInfo) -> NDArray[np.uint8]:
        return maps[info.path][info.offset : info.offset + info.nbytes]

    keys = {key for metadata, _ in parts for key in metadata}
    return File(path, maps, parts[0][0], stored, recognise(stored, content, options, keys), options)


def _read_part(path: Path, data: NDArray[np.uint8]) -> tuple[MappingProxyType[str, str], dict[str, TensorInfo]]:
    length = int.from_bytes(data[:_LENGTH_BYTES].tobytes(), "little")
    if length > MAX_HEADER:
        raise ValueError(f"{path}: a header of {length} bytes, at most {MAX_HEADER} are read")
    begin = _LENGTH_BYTES + length
    if begin > data.size:
        raise ValueError(f"{path}: expected a header of {length} bytes, the file has {data.size} bytes")
    header = _json(path, "header", data[_LENGTH_BYTES:begin].tobytes())
    metadata = _metadata(path, header.pop(_METADATA, {}))
    infos = {name: _info(path, name, entry, begin) for name, entry in header.items()}
    _check_cover(path, list(infos.values()), begin, data.size)
    return MappingProxyType(metadata), infos


def _json(path: Path, what: str, text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_object)
    except RecursionError:
        raise ValueError(f"{path}: {what}: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: {what}: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: {what}: expected a JSON object, got {type(value).__name__}")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"{quoted(twice)} stands twice")
    return found


def _metadata(path: Path, metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(f"{path}: {_METADATA}: expected names and strings")
    try:
        "".join((*metadata, *metadata.values())).encode()  # half a surrogate pair, which JSON can spell, is no text
    except ValueError as error:
        raise ValueError(f"{path}: {_METADATA}: {error}") from None
    return metadata


def _info(path: Path, name: str, entry: Any, data_begin: int) -> TensorInfo:
    try:
        name.encode()  # as for the metadata
        dtype, shape, (begin, end) = _fields(entry)
        nbytes = _nbytes(dtype, shape)
        if nbytes is not None and nbytes != end - begin:
            raise ValueError(f"expected {nbytes} bytes for shape {shape} of {dtype}, got {end - begin}")
    except ValueError as error:
        raise ValueError(f"{path}: {Subject('tensor', name)}: {error}") from None
    fmt = _FORMATS.get(dtype, unknown_name(dtype))
    tag = format_of(fmt).tag if dtype in _FORMATS else NO_TAG
    return TensorInfo(name, shape, fmt, tag, data_begin + begin, end - begin, path)


def _fields(entry: Any) -> tuple[str, tuple[int, ...], list[int]]:
    """dtype, shape and place of a tensor, each of the right kind."""
    if not isinstance(entry, dict):
        raise ValueError(f"expected a JSON object, got {type(entry).__name__}")
    dtype, shape, place = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or not _DTYPE_NAME.fullmatch(dtype):
        raise ValueError(f"dtype: expected a name, got {quoted(str(dtype))}")
    dims, ends = _numbers(shape), _numbers(place)
    if dims is None or len(dims) > _MAX_DIMS:
        expected = f"at most {_MAX_DIMS} numbers, whole and from 0 up"
        raise ValueError(f"shape: expected {expected}, got {quoted(str(shape))}")
    if ends is None or len(ends) != 2 or ends[0] > ends[1]:
        raise ValueError(f"data_offsets: expected a begin and an end, got {quoted(str(place))}")
    return dtype, as_shape(dims), ends


def _numbers(value: Any) -> list[int] | None:
    """`value` where it is a list of sizes."""
    if isinstance(value, list) and all(type(item) is int and 0 <= item < 2**63 for item in value):
        return value
    return None


def _nbytes(dtype: str, shape: tuple[int, ...]) -> int | None:
    """The bytes of a tensor; None where the dtype is not known."""
    if dtype not in _FORMATS and dtype not in _OTHER_BITS:
        return None
    bits = 8 * format_of(_FORMATS[dtype]).bytes if dtype in _FORMATS else _OTHER_BITS[dtype]
    total = math.prod(shape) * bits
    if total % 8:
        raise ValueError(f"{total} bits of {dtype} are no whole bytes")
    return total // 8


def _check_cover(path: Path, infos: list[TensorInfo], begin: int, size: int) -> None:
    """Raise where the tensors do not fill the bytes from `begin` to `size` one after another."""
    position = begin
    for info in sorted(infos, key=lambda info: (info.offset, info.nbytes)):
        if info.nbytes and info.offset != position:
            trouble = "overlaps another tensor" if info.offset < position else "leaves a gap before it"
            reason = f"data_offsets: begins at byte {info.offset} and {trouble}, which ends at {position}"
            raise ValueError(f"{path}: {Subject('tensor', info.name)}: {reason}")
        position = max(position, info.offset + info.nbytes)
        if position > size:
            reason = f"ends at byte {position}, past the file, which has {size} bytes"
            raise ValueError(f"{path}: {Subject('tensor', info.name)}: {reason}")
    if position != size:
        raise ValueError(f"{path}: {size - position} bytes behind the last tensor belong to none")
