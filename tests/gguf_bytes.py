"""Writes GGUF files field by field, the ones included that no library would write; and small helpers.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct

from gguf import GGUFWriter

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)
F32, Q4_0, I8, F64, BF16, UNKNOWN = 0, 2, 24, 28, 30, 99


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def string(text: str | bytes, length: int | None = None) -> bytes:
    """A string; `length` is what it claims, where that is not the truth."""
    data = text.encode() if isinstance(text, str) else text
    return u64(len(data) if length is None else length) + data


def array(kind: int, items: list[bytes], count: int | None = None) -> bytes:
    """The payload of an array value; `count` is what it claims."""
    return u32(kind) + u64(len(items) if count is None else count) + b"".join(items)


def pair(key: str | bytes, kind: int, payload: bytes) -> bytes:
    """A metadata entry."""
    return string(key) + u32(kind) + payload


def info(name: str | bytes, dims: list[int], tag: int, offset: int, n_dims: int | None = None) -> bytes:
    """A tensor entry; `dims` in GGUF's order, innermost first; `n_dims` is what it claims."""
    count = len(dims) if n_dims is None else n_dims
    return string(name) + u32(count) + b"".join(map(u64, dims)) + u32(tag) + u64(offset)


def gguf(
    pairs: list[bytes] | None = None,
    infos: list[bytes] | None = None,
    data: bytes = b"",
    *,
    version: int = 3,
    n_pairs: int | None = None,
    n_infos: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A whole file; `n_pairs` and `n_infos` are what the header claims."""
    pairs, infos = pairs or [], infos or []
    counts = u64(len(infos) if n_infos is None else n_infos) + u64(len(pairs) if n_pairs is None else n_pairs)
    header = b"GGUF" + u32(version) + counts + b"".join(pairs + infos)
    return header + bytes(-len(header) % alignment) + data


def save(writer: GGUFWriter) -> None:
    """Write what the library's writer has been given."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def sample() -> bytes:
    """A small sound file with every kind of value and of tensor; it ends with the last byte of its data."""
    nested = [array(UINT8, [b"\1", b"\2"]), array(STRING, [string("x")])]
    pairs = [
        pair("u8", UINT8, b"\xff"),
        pair("i8", INT8, b"\xff"),
        pair("u16", UINT16, struct.pack("<H", 65535)),
        pair("i16", INT16, struct.pack("<h", -2)),
        pair("u32", UINT32, u32(2**32 - 1)),
        pair("i32", INT32, struct.pack("<i", -3)),
        pair("f32", FLOAT32, struct.pack("<f", 0.5)),
        pair("yes", BOOL, b"\1"),
        pair("text", STRING, string("Grüße")),
        pair("u64", UINT64, u64(2**64 - 1)),
        pair("i64", INT64, struct.pack("<q", -4)),
        pair("f64", FLOAT64, struct.pack("<d", 0.1)),
        pair("i16s", ARRAY, array(INT16, [struct.pack("<h", i) for i in (-1, 0, 1)])),
        pair("bools", ARRAY, array(BOOL, [b"\0", b"\1"])),
        pair("texts", ARRAY, array(STRING, [string("a"), string(""), string("ab")])),
        pair("none", ARRAY, array(FLOAT32, [])),
        pair("no texts", ARRAY, array(STRING, [])),
        pair("nested", ARRAY, array(ARRAY, nested)),
    ]
    infos = [
        info("matrix", [3, 2], F32, 0),
        info("blocks", [32, 2], Q4_0, 32),
        info("strange", [5, 2], UNKNOWN, 96),
        info("half", [2], BF16, 128),
        info("scalar", [], F64, 160),
        info("empty", [4, 0], F32, 160),
        info("bytes", [1, 2, 1, 2], I8, 192),
    ]
    parts = [
        struct.pack("<6f", *range(6)),
        struct.pack("<e", 2.0) + bytes([0x98] * 16) + struct.pack("<e", 1.0) + bytes([0x79] * 16),
        b"12345",
        struct.pack("<HH", 0x3F80, 0xC000),
        struct.pack("<d", -0.25),
        struct.pack("<4b", 1, -1, 2, -2),
    ]
    lengths = [32, 64, 32, 32, 32, 4]
    data = b"".join(part.ljust(length, b"\0") for part, length in zip(parts, lengths, strict=True))
    return gguf(pairs, infos, data)
