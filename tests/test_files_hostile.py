"""`cbquant.open` on files that are cut, lie or were never a model: clean errors, promptly, little memory."""

from __future__ import annotations

import struct
import time
import tracemalloc

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cbquant
from cbquant.files import GGUFError
from tests import gguf_bytes as gb

HUGE = 2**60
TEXT = gb.string("x")


def one(dims: list[int], tag: int = gb.F32, offset: int = 0, **claims: int) -> bytes:
    return gb.gguf([], [gb.info("w", dims, tag, offset, **claims)], bytes(64))


def entry(kind: int, payload: bytes, key: str = "k") -> bytes:
    return gb.gguf([gb.pair(key, kind, payload)])


def nested(depth: int) -> bytes:
    payload = gb.array(gb.UINT8, [b"\1"])
    for _ in range(depth - 1):
        payload = gb.array(gb.ARRAY, [payload])
    return payload


HOSTILE = {
    "huge number of tensors": (gb.gguf(n_infos=HUGE), f"{HUGE} tensors: expected .* more bytes"),
    "huge number of pairs": (gb.gguf(n_pairs=HUGE), f"{HUGE} metadata pairs: expected .* more bytes"),
    "number that wraps": (gb.gguf(n_infos=2**61 + 1), "tensors: expected"),
    "huge key": (gb.gguf([gb.string("k", HUGE)]), "metadata key 0: expected"),
    "huge string": (entry(gb.STRING, gb.string("x", HUGE)), "metadata 'k': expected"),
    "largest string": (entry(gb.STRING, gb.string("x", 2**64 - 1)), "metadata 'k': expected"),
    "huge array": (entry(gb.ARRAY, gb.array(gb.UINT8, [], HUGE)), "metadata 'k': expected"),
    "array that wraps": (entry(gb.ARRAY, gb.array(gb.UINT64, [], 2**61)), "metadata 'k': expected"),
    "huge array of strings": (entry(gb.ARRAY, gb.array(gb.STRING, [TEXT], HUGE)), "metadata 'k': expected"),
    "huge string in an array": (
        entry(gb.ARRAY, gb.array(gb.STRING, [gb.string("x", 2**64 - 1), TEXT])),
        "metadata 'k': its strings run past the end",
    ),
    "long last string in an array": (
        entry(gb.ARRAY, gb.array(gb.STRING, [TEXT, gb.string("x", 200)])),
        "metadata 'k': expected",
    ),
    "huge array of arrays": (entry(gb.ARRAY, gb.array(gb.ARRAY, [], HUGE)), "metadata 'k': expected"),
    "deep array": (entry(gb.ARRAY, nested(9)), "nested deeper than 8"),
    "unknown value type": (entry(13, b"\0"), "metadata 'k': value type 13"),
    "unknown element type": (entry(gb.ARRAY, gb.array(77, [])), "metadata 'k': array of value type 77"),
    "bool 2": (entry(gb.BOOL, b"\2"), "a bool is 0 or 1, got 2"),
    "bool 255 in an array": (entry(gb.ARRAY, gb.array(gb.BOOL, [b"\1", b"\xff"])), "got 255"),
    "key twice": (gb.gguf([gb.pair("k", gb.UINT8, b"\0")] * 2), "metadata 'k': the key stands twice"),
    "name twice": (gb.gguf([], [gb.info("w", [1], gb.F32, 0)] * 2, bytes(4)), "'w': the name stands twice"),
    "huge name": (gb.gguf([], [gb.string("w", HUGE) + bytes(64)]), "name of tensor 0: expected"),
    "nine dims": (one([1] * 9), "tensor 'w': 9 dimensions, at most 4"),
    "five dims": (one([1] * 5), "tensor 'w': 5 dimensions, at most 4"),
    "2^32 - 1 dims": (one([1], n_dims=2**32 - 1), "tensor 'w': 4294967295 dimensions"),
    "product that wraps to 0": (one([2**32, 2**32]), "tensor 'w': shape: .* is larger than any array"),
    "product that wraps to 16": (one([2**62 + 4, 4]), "tensor 'w': shape: .* is larger than any array"),
    "empty but too large for NumPy": (one([0, 2**62, 4]), "tensor 'w': shape: .* is larger than any array"),
    "empty but 2^63 bytes": (one([0, 2**60], gb.F64), "tensor 'w': shape: .* is larger than any array"),
    "negative as int64": (one([2**64 - 1]), "tensor 'w': shape: .* is larger than any array"),
    "data past the end": (one([17]), "tensor 'w': its 68 bytes at .* end past the file"),
    "offset past the end": (one([1], offset=64), "tensor 'w': its 4 bytes at .* end past the file"),
    "largest offset": (one([1], offset=2**64 - 1), "tensor 'w': its 4 bytes at .* end past the file"),
    "unknown past the end": (one([1], gb.UNKNOWN, 2**64 - 32), "tensor 'w': its 0 bytes at .* end past"),
    "row of half a block": (
        one([128, 2], 12),
        r"tensor 'w': shape \(2, 128\): last dimension 128 is not a multiple of 256 \(q4_k\)",
    ),
    "scalar of blocks": (one([], gb.Q4_0), "tensor 'w': shape: expected at least one dimension for q4_0"),
    "alignment 0": (entry(gb.UINT32, gb.u32(0), "general.alignment"), "expected a power of two, got 0"),
    "alignment 24": (entry(gb.UINT32, gb.u32(24), "general.alignment"), "expected a power of two, got 24"),
    "alignment of a wrong type": (
        entry(gb.STRING, gb.string("32"), "general.alignment"),
        "general.alignment: expected a uint32, got string",
    ),
    "alignment past the end": (
        gb.gguf(
            [gb.pair("general.alignment", gb.UINT32, gb.u32(2**31))],
            [gb.info("w", [1], gb.F32, 0)],
            bytes(64),
        ),
        "tensor 'w': its 4 bytes at 2147483648 end past the file",
    ),
    "version 1": (b"GGUF" + struct.pack("<IIQ", 1, 0, 0), "GGUF version 1: only versions 2 and 3 are read"),
    "version 0": (gb.gguf(version=0), "GGUF version 0"),
    "version 4": (gb.gguf(version=4), "GGUF version 4"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "a big-endian GGUF file"),
}


@pytest.mark.parametrize(("content", "message"), HOSTILE.values(), ids=HOSTILE)
def test_open_refuses_promptly_on_little_memory(tmp_path, content, message):
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    begin = time.perf_counter()
    try:
        with pytest.raises(GGUFError, match=message) as caught:
            cbquant.open(path)
        seconds, (_, peak) = time.perf_counter() - begin, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seconds < 1
    assert peak < 2**18
    assert caught.value.path == path
    assert 0 <= caught.value.position <= len(content)
    assert str(caught.value).startswith(f"{path}: at byte {caught.value.position}: ")


def test_open_refuses_every_cut(tmp_path):
    content = gb.sample()
    path = tmp_path / "cut.gguf"
    path.write_bytes(content)
    assert len(cbquant.open(path)) == 7
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"cut\.gguf") as caught:
            cbquant.open(path)
        if length >= 4:  # less is not yet known to be GGUF
            assert isinstance(caught.value, GGUFError)
            assert caught.value.position <= length


def test_open_refuses_what_gguf_writes_big_endian(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "big.gguf", "llama", endianess=gguf.GGUFEndian.BIG)
    writer.add_tensor("w", np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(GGUFError, match="big-endian"):
        cbquant.open(tmp_path / "big.gguf")


def test_open_refuses_what_is_no_model(tmp_path):
    for content, message in [(b"", "an empty file"), (b"GG", "b'GG'"), (b"PK\3\4zip", r"b'PK\\x03")]:
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(ValueError, match=f"x: expected a file that begins with b'GGUF', got {message}"):
            cbquant.open(tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        cbquant.open(tmp_path / "absent")
    with pytest.raises((IsADirectoryError, PermissionError)):  # POSIX, Windows
        cbquant.open(tmp_path)
    with pytest.raises(TypeError):
        cbquant.open(3)


def test_open_accepts_what_is_odd_but_sound(tmp_path):
    path = tmp_path / "odd.gguf"
    infos = [gb.info("", [2], gb.F32, 1), gb.info("same", [2], gb.F32, 1), gb.info("over", [8], gb.I8, 3)]
    data = b"\0" + struct.pack("<2f", 1, 2) + bytes(2)
    path.write_bytes(gb.gguf([gb.pair("", gb.UINT8, b"\7")], infos, data))
    file = cbquant.open(path)  # offsets that are not multiples of the alignment, and overlap
    assert file[""].tolist() == file["same"].tolist() == [1, 2]
    assert file["over"].shape == (8,)
    assert file.metadata[""] == 7
    unaligned = [gb.pair("general.alignment", gb.UINT32, gb.u32(1))]
    path.write_bytes(gb.gguf(unaligned, infos[:1], bytes(9), alignment=1))
    assert cbquant.open(path)[""].tolist() == [0, 0]
    path.write_bytes(gb.gguf([gb.pair("general.alignment", gb.UINT32, gb.u32(2**31))]))
    assert len(cbquant.open(path)) == 0  # no tensors: nothing lies past the end
    path.write_bytes(gb.gguf([gb.pair("deep", gb.ARRAY, nested(8))], version=2))
    assert cbquant.open(path).metadata["deep"][0][0][0][0][0][0][0].tolist() == [1]


def use_everything(file: cbquant.files.File) -> None:
    dict(file.metadata)
    repr(file.metadata)
    repr(file)
    file._repr_html_()
    for name in file:
        tensor = file[name]
        if file.infos[name].format.startswith("unknown_"):
            with pytest.raises(ValueError, match="cannot be decoded"):
                np.asarray(tensor)
        else:
            assert np.asarray(tensor).shape == file.infos[name].shape


@settings(max_examples=300, deadline=5000)
@given(
    flips=st.dictionaries(st.integers(0, len(gb.sample()) - 1), st.integers(0, 255), min_size=1, max_size=6),
    cut=st.integers(0, len(gb.sample())) | st.none(),
)
def test_open_survives_damage(tmp_path_factory, flips, cut):
    content = bytearray(gb.sample())
    for position, byte in flips.items():
        content[position] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(content[:cut])
    try:
        file = cbquant.open(path)
    except ValueError:
        return
    use_everything(file)
