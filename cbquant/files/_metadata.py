"""The key-value part of a GGUF file, walked once when it is opened and decoded when it is asked for.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Nothing that the file claims (a count,
a length) is believed before it is compared with the bytes that are left.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbquant.files._text import SHOWN_LENGTH, Subject, quoted

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")

#: GGUF value type -> dtype, for those of a fixed size.
_SCALARS: dict[int, np.dtype[Any]] = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_STRING, _ARRAY = 8, 9

#: Arrays of arrays are legal; this bounds the recursion. No writer known nests at all.
_MAX_DEPTH = 8

_SMALLEST_ENTRY = _U64.size + _U32.size + 1  # an empty key, its type, one byte
_SMALLEST_ARRAY = _U32.size + _U64.size  # a type and a count of 0

#: Bytes of a metadata key, by the GGUF document, and here of a tensor's name too.
MAX_NAME = 2**16 - 1


class GGUFError(ValueError):
    """A GGUF file that is cut, contradicts itself or uses what cbquant does not read.

    `path` names the file, `position` is the byte at which the trouble was met, `reason` says what it is.
    """

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(path, position, reason)
        self.path, self.position, self.reason = path, position, reason

    def __str__(self) -> str:
        return f"{self.path}: at byte {self.position}: {self.reason}"


class Cursor:
    """A position in the bytes of a GGUF file that never moves past their end."""

    def __init__(self, path: Path, data: memoryview, position: int = 0) -> None:
        self.path, self.data, self.position = path, data, position

    def error(self, reason: str, position: int | None = None) -> GGUFError:
        return GGUFError(self.path, self.position if position is None else position, reason)

    def need(self, nbytes: int, what: object) -> None:
        """Raise where fewer than `nbytes` are left."""
        left = len(self.data) - self.position
        if nbytes > left:
            raise self.error(f"{what}: expected {nbytes} more bytes, the file has {left}")

    def skip(self, nbytes: int, what: object) -> None:
        self.need(nbytes, what)
        self.position += nbytes

    def _unpack(self, field: struct.Struct, what: object) -> int:
        self.need(field.size, what)
        (value,) = field.unpack_from(self.data, self.position)
        self.position += field.size
        return int(value)

    def u32(self, what: object) -> int:
        return self._unpack(_U32, what)

    def u64(self, what: object) -> int:
        return self._unpack(_U64, what)

    def string(self, what: object, most: int | None = None) -> str:
        """A length, at most `most`, and its bytes. Those that are not UTF-8 become lone surrogates: none is lost."""
        nbytes = self.u64(what)
        if most is not None and nbytes > most:
            raise self.error(f"{what}: expected at most {most} bytes, got {nbytes}")
        self.need(nbytes, what)
        begin, self.position = self.position, self.position + nbytes
        return str(self.data[begin : self.position], "utf-8", "surrogateescape")

    def array(self, dtype: np.dtype[Any], count: int, what: object) -> NDArray[Any]:
        """`count` numbers as a read-only view."""
        begin = self.position
        self.skip(count * dtype.itemsize, what)
        return np.frombuffer(self.data[begin : self.position], dtype)


def _skip_scalars(cursor: Cursor, dtype: np.dtype[Any], count: int, what: object) -> None:
    begin = cursor.position
    cursor.skip(count * dtype.itemsize, what)
    if dtype.kind == "b" and count:
        worst = int(np.frombuffer(cursor.data[begin : cursor.position], np.uint8).max())
        if worst > 1:
            raise cursor.error(f"{what}: a bool is 0 or 1, got {worst}", begin)


def _skip_strings(cursor: Cursor, count: int, what: object) -> None:
    """Step over `count` strings: tokenizers have 50 to 250 thousand, hence the bare loop."""
    cursor.need(count * _U64.size, what)
    data, position, unpack = cursor.data, cursor.position, _U64.unpack_from
    last_length = len(data) - _U64.size
    for _ in range(count):
        if position > last_length:
            break
        position += _U64.size + unpack(data, position)[0]
    else:
        cursor.skip(position - cursor.position, what)
        return
    raise cursor.error(f"{what}: its strings run past the end of the file")


def _skip_array(cursor: Cursor, what: object, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise cursor.error(f"{what}: arrays nested deeper than {_MAX_DEPTH}")
    begin = cursor.position
    kind, count = cursor.u32(what), cursor.u64(what)
    if kind in _SCALARS:
        _skip_scalars(cursor, _SCALARS[kind], count, what)
    elif kind == _STRING:
        _skip_strings(cursor, count, what)
    elif kind == _ARRAY:
        cursor.need(count * _SMALLEST_ARRAY, what)
        for _ in range(count):
            _skip_array(cursor, what, depth + 1)
    else:
        raise cursor.error(f"{what}: array of value type {kind}, which GGUF does not define", begin)


def _skip_value(cursor: Cursor, kind: int, what: object) -> None:
    """Step over one value and check all that can be wrong with it, so that reading it later cannot fail."""
    if kind in _SCALARS:
        _skip_scalars(cursor, _SCALARS[kind], 1, what)
    elif kind == _STRING:
        cursor.skip(cursor.u64(what), what)
    elif kind == _ARRAY:
        _skip_array(cursor, what, depth=1)
    else:
        raise cursor.error(f"{what}: value type {kind}, which GGUF does not define")


def _read_value(cursor: Cursor, kind: int, what: object) -> Any:
    """Decode a value that `_skip_value` has passed."""
    if kind == _STRING:
        return cursor.string(what)
    if kind != _ARRAY:
        return cursor.array(_SCALARS[kind], 1, what).item()
    kind, count = cursor.u32(what), cursor.u64(what)
    if kind in _SCALARS:
        return cursor.array(_SCALARS[kind], count, what)
    return [_read_value(cursor, kind, what) for _ in range(count)]


def _type_name(kind: int) -> str:
    return _SCALARS[kind].name if kind in _SCALARS else {_STRING: "string", _ARRAY: "array"}[kind]


class Metadata(Mapping[str, Any]):
    """The key-value pairs of a GGUF file, in its order; a value is decoded when it is first asked for.

    Integers, floats and bools are Python's, strings are str (bytes that are not UTF-8 as lone surrogates:
    ``.encode("utf-8", "surrogateescape")`` gives them back), arrays of numbers are read-only ndarrays that
    view the file, arrays of strings and of arrays are lists (the same list each time).
    """

    def __init__(self, path: Path, data: bytes | memoryview, entries: dict[str, tuple[int, int]]) -> None:
        self._path, self._data = path, memoryview(data)  # the file as far as its last pair
        self._entries = entries  # key -> (value type, position)
        self._values: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            kind, position = self._entries[key]
            self._values[key] = _read_value(self._cursor(position), kind, key)
        return self._values[key]

    def __reduce__(self) -> tuple[Any, ...]:
        # A memoryview can be neither pickled nor copied; the pairs are a small part of the file.
        return Metadata, (self._path, bytes(self._data), self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _cursor(self, position: int) -> Cursor:
        return Cursor(self._path, self._data, position)

    def type_of(self, key: str) -> str:
        """The type that the file gives the value: ``"uint32"``, ``"string"``, ``"array[float32]"``."""
        kind, position = self._entries[key]
        if kind != _ARRAY:
            return _type_name(kind)
        return f"array[{_type_name(self._cursor(position).u32(key))}]"

    def encoded(self, key: str) -> tuple[int, bytes]:
        """The value as it stands in the file: the number of its type, and its bytes."""
        kind, position = self._entries[key]
        cursor = self._cursor(position)
        _skip_value(cursor, kind, key)
        return kind, bytes(self._data[position : cursor.position])

    def _summary(self, key: str) -> str:
        """The value in a few words: long strings and arrays are not decoded for being listed."""
        kind, position = self._entries[key]
        cursor = self._cursor(position)
        if kind == _ARRAY:
            return f"{_type_name(cursor.u32(key))}[{cursor.u64(key)}]"
        if kind != _STRING:
            return repr(self[key])
        nbytes = min(cursor.u64(key), 4 * (SHOWN_LENGTH + 1))  # a character takes at most 4 in UTF-8
        begin = cursor.position
        return quoted(str(cursor.data[begin : begin + nbytes], "utf-8", "surrogateescape"))

    def __repr__(self) -> str:
        lines = [f"  {quoted(key)}: {self._summary(key)}," for key in self]
        return "\n".join(["Metadata({", *lines, "})"])


def read_metadata(cursor: Cursor, count: int) -> Metadata:
    """Walk `count` key-value pairs; the cursor is left behind them."""
    cursor.need(count * _SMALLEST_ENTRY, f"{count} metadata pairs")
    entries: dict[str, tuple[int, int]] = {}
    for number in range(count):
        begin = cursor.position
        key = cursor.string(f"metadata key {number}", MAX_NAME)
        what = Subject("metadata", key)
        if key in entries:
            raise cursor.error(f"{what}: the key stands twice", begin)
        kind = cursor.u32(what)
        entries[key] = (kind, cursor.position)
        _skip_value(cursor, kind, what)
    return Metadata(cursor.path, cursor.data[: cursor.position], entries)
