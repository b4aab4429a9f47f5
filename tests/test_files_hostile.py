"""`cbquant.open` on files that are cut, lie or were never a model: clean errors, promptly, little memory."""

from __future__ import annotations

import copy
import io
import os
import pickle
import signal
import struct
import sys
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
    "more arrays in an array than fit": (
        entry(gb.ARRAY, gb.array(gb.ARRAY, [gb.array(gb.UINT8, [])] * 9, 10)),
        "metadata 'k': expected 120 more bytes, the file has 111",
    ),
    "long key": (gb.gguf([gb.pair("k" * 65536, gb.UINT8, b"\0")]), "key 0: expected at most 65535 bytes, got 65536"),
    "long name": (gb.gguf([], [gb.info("w" * 65536, [0], gb.F32, 0)]), "tensor 0: expected at most 65535 bytes"),
    "trouble under a long key": (gb.gguf([gb.pair("k" * 65535, 13, b"\0")]), f"metadata '{'k' * 99}…': value type 13"),
    "trouble under a long name": (
        gb.gguf([], [gb.info("w" * 65535, [1] * 5, gb.F32, 0)]),
        f"tensor '{'w' * 99}…': 5 dimensions",
    ),
    "long alignment": (
        entry(gb.STRING, gb.string("3" * 2**19), "general.alignment"),
        "general.alignment: expected a uint32, got string",
    ),
    "dimension that wraps of an unknown type": (
        one([2**64 - 1], gb.UNKNOWN),
        "tensor 'w': shape: .* is larger than any array",
    ),
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
    "unknown before a tensor past the end": (
        gb.gguf([], [gb.info("u", [1], gb.UNKNOWN, 0), gb.info("w", [1], gb.F32, 2**63)], bytes(64)),
        "tensor 'u': its .* bytes at .* end past",
    ),
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
        with pytest.raises(ValueError, match=f"x: expected a file that begins with b'GGUF', .*, got {message}"):
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


class _Hung(Exception):
    pass


@pytest.fixture
def no_hang():
    """Turns a call that blocks into an error after some seconds."""

    def stop(*_: object) -> None:
        raise _Hung

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no FIFOs")
@pytest.mark.parametrize("has_writer", [False, True])
def test_open_refuses_fifos(tmp_path, no_hang, has_writer):
    shard, fifo = tmp_path / "m-00001-of-00002.gguf", tmp_path / "m-00002-of-00002.gguf"
    shard.write_bytes(gb.sample())
    os.mkfifo(fifo)
    writer = os.open(fifo, os.O_RDWR) if has_writer else None
    try:
        for path in (fifo, shard):
            with pytest.raises(OSError, match=r"expected a regular file: .*m-00002-of-00002\.gguf"):
                cbquant.open(path)
    finally:
        if writer is not None:
            os.close(writer)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has other devices")
def test_open_refuses_devices():
    with pytest.raises(OSError, match="expected a regular file: '/dev/zero'"):
        cbquant.open("/dev/zero")


@pytest.mark.skipif(sys.platform != "linux", reason="counts open descriptors in /proc")
def test_open_opens_a_file_once_and_leaves_no_descriptor(tmp_path, monkeypatch):
    path = tmp_path / "sample.gguf"
    path.write_bytes(gb.sample())
    opened, real_open = [], os.open

    def counting_open(*arguments: object) -> int:
        opened.append(arguments[0])
        return real_open(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", counting_open)
        patch.setattr(io, "open", None)  # what pathlib opens with
        file = cbquant.open(path)
    assert opened == [path]
    assert len(file) == 7
    before = len(os.listdir("/proc/self/fd"))
    for content in (b"", b"PK"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="expected a file that begins with"):
            cbquant.open(path)
    with pytest.raises(IsADirectoryError):
        cbquant.open(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(sys.platform != "linux", reason="needs sparse files: this one claims 1 GiB")
@pytest.mark.parametrize(
    "head",
    [
        b"GGUF" + gb.u32(3) + gb.u64(0) + gb.u64(1) + gb.u64(2**30),
        b"GGUF" + gb.u32(3) + gb.u64(1) + gb.u64(0) + gb.u64(2**30),
        b"GGUF" + gb.u32(3) + gb.u64(0) + gb.u64(1) + gb.pair("k", gb.ARRAY, gb.array(gb.ARRAY, [], 2**62)),
    ],
    ids=["key", "name", "arrays"],
)
def test_open_refuses_sparse_files_promptly(tmp_path, no_hang, head):
    path = tmp_path / "sparse.gguf"
    path.write_bytes(head)
    os.truncate(path, len(head) + 2**30)
    begin = time.perf_counter()
    with pytest.raises(GGUFError, match=r"expected (at most 65535|\d+ more) bytes"):
        cbquant.open(path)
    assert time.perf_counter() - begin < 1


def test_long_names_are_cut_where_they_are_shown(tmp_path):
    path = tmp_path / "long.gguf"
    key, name = "k" * 65535, "w" * 65535
    path.write_bytes(gb.gguf([gb.pair(key, gb.STRING, gb.string("☃" * 9999))], [gb.info(name, [1], 0, 0)], bytes(4)))
    file = cbquant.open(path)
    assert file.metadata[key] == "☃" * 9999
    assert file[name].shape == (1,)
    assert repr(file.metadata) == f"Metadata({{\n  '{'k' * 99}…': '{'☃' * 99}…',\n}})"
    for text in (repr(file), file._repr_html_()):
        assert "w" * 99 + "…" in text
        assert len(text) < 2000


def test_empty_tensors_need_no_data(tmp_path):
    path = tmp_path / "empty.gguf"
    for offset in (0, 2**64 - 1):
        infos = [gb.info("w", [0], gb.F32, offset), gb.info("u", [0, 3], gb.UNKNOWN, offset)]
        path.write_bytes(gb.gguf([], infos, alignment=1))
        assert path.stat().st_size % 32  # not padded
        file = cbquant.open(path)
        assert file["w"].shape == (0,)
        assert file["u"].shape == (3, 0)
        assert file["u"].nbytes == file.infos["w"].nbytes == file.infos["u"].nbytes == 0
        use_everything(file)


def test_metadata_can_be_copied_and_pickled(tmp_path):
    path = tmp_path / "sample.gguf"
    path.write_bytes(gb.sample() + bytes(2**20))
    metadata = cbquant.open(path).metadata
    assert len(pickle.dumps(metadata)) < 2**12
    for other in (copy.deepcopy(metadata), copy.copy(metadata), pickle.loads(pickle.dumps(metadata))):
        assert list(other) == list(metadata)
        assert repr(other) == repr(metadata)
        assert [other.type_of(key) for key in other] == [metadata.type_of(key) for key in metadata]
        assert (other["text"], other["texts"], other["u64"]) == ("Grüße", ["a", "", "ab"], 2**64 - 1)
        assert other["i16s"].tolist() == [-1, 0, 1]
        assert not other["i16s"].flags.writeable


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
