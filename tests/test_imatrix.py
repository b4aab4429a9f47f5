"""Importance matrices: both kinds of files, sound and hostile."""

from __future__ import annotations

import os
import struct
import sys

import gguf
import numpy as np
import pytest

import cbquant
from cbquant.convert import Imatrix, quantize_file, read_imatrix
from tests import convert_files as cf
from tests import gguf_bytes as gb

HUGE = 2**31 - 1


def write_gguf(path, entries, kind="imatrix", datasets=("wiki.txt", "code.txt")):
    """`entries`: name -> (sums, counts)."""
    writer = gguf.GGUFWriter(path, "x")
    writer.kv_data[0].clear()  # such files have no architecture
    if kind is not None:
        writer.add_string("general.type", kind)
    writer.add_array("imatrix.datasets", list(datasets))
    writer.add_uint32("imatrix.chunk_count", 10)
    writer.add_uint32("imatrix.chunk_size", 512)
    for name, (sums, counts) in entries.items():
        if sums is not None:
            writer.add_tensor(f"{name}.in_sum2", sums)
        if counts is not None:
            writer.add_tensor(f"{name}.counts", counts)
    gb.save(writer)
    return path


def i32(*numbers):
    return struct.pack(f"<{len(numbers)}i", *numbers)


def entry(name, calls, values, length=None, count=None):
    """An entry of a .dat file; `length` and `count` are what it claims."""
    name = name.encode() if isinstance(name, str) else name
    head = i32(len(name) if length is None else length) + name
    return head + i32(calls, len(values) if count is None else count) + struct.pack(f"<{len(values)}f", *values)


def dat(*entries, count=None, tail=b""):
    return i32(len(entries) if count is None else count) + b"".join(entries) + tail


TAIL = i32(7, 8) + b"wiki.txt"


def test_gguf(tmp_path):
    rng = np.random.default_rng(0)
    dense, experts = rng.random((1, 8), np.float32), rng.random((3, 8), np.float32)
    one, many = np.array([[4]], np.float32), np.array([[2], [0], [5]], np.float32)
    entries = {"a.weight": (dense, one), "e.weight": (experts, many), "shared.weight": (experts, one)}
    matrix = read_imatrix(write_gguf(tmp_path / "imatrix.gguf", entries))
    assert list(matrix) == list(entries)
    np.testing.assert_array_equal(matrix["a.weight"], dense[0] / np.float32(4))
    expected = np.stack([experts[0] / np.float32(2), np.ones(8, np.float32), experts[2] / np.float32(5)])
    np.testing.assert_array_equal(matrix["e.weight"], expected)
    np.testing.assert_array_equal(matrix["shared.weight"], experts / np.float32(4))
    assert {values.dtype for values in matrix.values()} == {np.dtype(np.float32)}
    assert (matrix.datasets, matrix.chunks) == (("wiki.txt", "code.txt"), 10)
    assert matrix.path == tmp_path / "imatrix.gguf"


@pytest.mark.parametrize(
    ("tail", "chunks", "datasets"), [(b"", 0, ()), (i32(7), 7, ()), (i32(7, 0), 7, ()), (TAIL, 7, ("wiki.txt",))]
)
def test_dat(tmp_path, tail, chunks, datasets):
    path = tmp_path / "imatrix.dat"
    path.write_bytes(dat(entry("a.weight", 4, [1, 2, 3]), entry(b"\xff", 0, [5]), entry("e", 3, [1] * 6), tail=tail))
    matrix = read_imatrix(path)
    assert list(matrix) == ["a.weight", "\udcff", "e"]
    assert matrix["a.weight"].tolist() == [0.25, 0.5, 0.75]
    assert matrix["\udcff"].tolist() == [5]  # as llama.cpp: nothing to divide by
    np.testing.assert_array_equal(matrix["e"], np.full(6, np.float32(1) / np.float32(3)))
    assert (matrix.chunks, matrix.datasets) == (chunks, datasets)


@pytest.mark.parametrize("kind", ["gguf", "dat"])
def test_a_file_reaches_the_encoder(tmp_path, monkeypatch, kind):
    arrays, rng = cf.arrays(), np.random.default_rng(5)
    sums, experts = rng.random((1, 64), np.float32), rng.random((4, 64), np.float32)
    path = tmp_path / "imatrix"
    if kind == "gguf":
        many = np.full((4, 1), 3, np.float32)
        write_gguf(path, {cf.V: (sums, many[:1]), cf.EXPERTS: (experts, many)})
    else:
        path.write_bytes(dat(entry(cf.V, 3, sums[0]), entry(cf.EXPERTS, 3, experts.reshape(-1)), tail=TAIL))
    calls = []
    monkeypatch.setattr(cbquant, "quantize", cf.fake_quantize(calls))
    dst = tmp_path / "new.gguf"
    quantize_file(cf.write_gguf(tmp_path / "model.gguf", arrays), dst, "q4_0", imatrix=path)
    given = [weights for _, _, weights, *_ in calls if weights is not None]
    np.testing.assert_array_equal(given, np.concatenate([sums, experts]) / np.float32(3))
    metadata = cbquant.open(dst).metadata
    own = {key: metadata[f"quantize.imatrix.{key}"] for key in ("file", "dataset", "entries_count", "chunks_count")}
    chunks = 10 if kind == "gguf" else 7
    assert own == {"file": str(path), "dataset": "wiki.txt", "entries_count": 2, "chunks_count": chunks}


FINE = np.ones((1, 4), np.float32), np.ones((1, 1), np.float32)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({}, r"expected an importance matrix, with tensors NAME\.in_sum2 and NAME\.counts"),
        ({"a": (FINE[0], None)}, r"tensor 'a\.counts' is missing"),
        ({"a": (None, FINE[1])}, "expected an importance matrix"),
        ({"a": (FINE[0].astype(np.float16), FINE[1])}, r"'a\.in_sum2': expected f32, got f16"),
        ({"a": (FINE[0], FINE[1].astype(np.int32))}, r"'a\.counts': expected f32, got i32"),
        (
            {"a": (FINE[0], np.ones((3, 1), np.float32))},
            r"'a': expected 1 count or one for each row of sums, \(1, 4\), got 3",
        ),
        ({"a": (np.ones((1, 256), np.float32), np.ones((256, 1), np.float32))}, r"one for each row .*, got 256"),
        ({"a": (-FINE[0], FINE[1])}, r"'a\.in_sum2': expected finite numbers from 0 up, got -1\.0"),
        ({"a": (FINE[0], -FINE[1])}, r"'a\.counts': expected finite numbers from 0 up, got -1\.0"),
        ({"a": (FINE[0] * np.float32(np.nan), FINE[1])}, "expected finite numbers from 0 up, got nan"),
        ({"a": (FINE[0] * np.float32(3e38), FINE[1] / 4)}, "expected finite numbers from 0 up, got inf"),
    ],
)
def test_gguf_that_is_none(tmp_path, entries, message):
    path = write_gguf(tmp_path / "imatrix.gguf", entries)
    with pytest.raises(ValueError, match=message):
        read_imatrix(path)


def test_a_model_is_no_imatrix(tmp_path):
    with pytest.raises(ValueError, match="expected an importance matrix"):
        read_imatrix(cf.write_gguf(tmp_path / "model.gguf", cf.arrays()))
    with pytest.raises(ValueError, match="expected an importance matrix"):
        read_imatrix(write_gguf(tmp_path / "imatrix.gguf", {"a": FINE}, kind="model"))
    assert list(read_imatrix(write_gguf(tmp_path / "imatrix.gguf", {"a": FINE}, kind=None))) == ["a"]


A = entry("a", 1, [1, 2])
HOSTILE = {
    "empty": (b"", "number of entries: expected 4 bytes, the file has 0 more"),
    "short": (b"\1\0", "number of entries: expected 4 bytes, the file has 2 more"),
    "no entries": (dat(), "got a file of 0 entries"),
    "a negative number of entries": (dat(count=-1), "got a file of -1 entries"),
    "a huge number of entries": (dat(A, count=HUGE), "name of entry 1: expected 4 bytes"),
    "a long name": (dat(entry("a", 1, [1], length=HUGE)), f"name of entry 0: expected {HUGE} bytes"),
    "a negative name": (dat(entry("a", 1, [1], length=-1)), "name of entry 0: expected -1 bytes"),
    "negative calls": (dat(entry("a", -1, [1])), "tensor 'a': expected a number of calls from 0 up, got -1"),
    "no values": (dat(entry("a", 1, [])), "tensor 'a': expected values, got 0"),
    "a negative number of values": (dat(entry("a", 1, [], count=-1)), "tensor 'a': expected values, got -1"),
    "a huge number of values": (dat(entry("a", 1, [1], count=HUGE)), f"tensor 'a': expected {4 * HUGE} bytes"),
    "a name twice": (dat(A, A), "tensor 'a' stands twice"),
    "NaN": (dat(entry("a", 1, [float("nan")])), "tensor 'a': expected finite numbers from 0 up, got nan"),
    "a negative value": (dat(entry("a", 2, [1, -2])), r"expected finite numbers from 0 up, got -1\.0"),
    "a cut tail": (dat(A, tail=b"\1\0"), "number of chunks: expected 4 bytes, the file has 2 more"),
    "a cut text": (dat(A, tail=TAIL[:-1]), "name of the text: expected 8 bytes, the file has 7 more"),
    "more": (dat(A, tail=TAIL + b"x"), "1 bytes are left over behind 1 entries"),
    "something else": (b"PK\3\4" * 10, "name of entry 0: expected"),
}


@pytest.mark.parametrize(("content", "message"), HOSTILE.values(), ids=HOSTILE)
def test_dat_that_is_none(tmp_path, content, message):
    path = tmp_path / "imatrix.dat"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"imatrix\.dat: .*{message}"):
        read_imatrix(path)


def test_every_cut_of_a_file_is_an_error_or_a_shorter_tail(tmp_path):
    path, whole = tmp_path / "imatrix.dat", dat(A, entry("b", 2, [3]), tail=TAIL)
    sound = {len(whole), len(whole) - len(TAIL), len(whole) - len(TAIL) + 4}
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        if length in sound:
            assert list(read_imatrix(path)) == ["a", "b"]
        else:
            with pytest.raises(ValueError, match=r"imatrix\.dat"):
                read_imatrix(path)


@pytest.mark.skipif(sys.platform != "linux", reason="needs sparse files: this one claims 4 GiB")
def test_a_sparse_file_is_refused_promptly(tmp_path):
    path = tmp_path / "imatrix.dat"
    path.write_bytes(i32(HUGE))
    os.truncate(path, 2**32)
    with pytest.raises(ValueError, match="tensor '': expected values, got 0"):
        read_imatrix(path)
    with pytest.raises(FileNotFoundError):
        read_imatrix(tmp_path / "absent")


def test_an_imatrix_is_a_dict():
    matrix = Imatrix({"a": np.ones(3, np.float32)})
    assert (matrix.path, matrix.datasets, matrix.chunks) == (None, (), 0)
    assert list(matrix) == ["a"]
