"""`cbquant.open` on safetensors: against the library that writes them, and on files that it would not write."""

from __future__ import annotations

import json
import os
import pickle
import struct
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cbquant
from cbquant.cli import main
from tests.cli_files import run_error, run_json

safetensors = pytest.importorskip("safetensors")  # Python 3.13t has no wheel of it
save_file = pytest.importorskip("safetensors.numpy").save_file

DTYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    **{f"i{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    "bool": np.bool_,
}


def tensors():
    rng = np.random.default_rng(0)
    found = {name: rng.integers(0, 2, (3, 5)).astype(dtype) for name, dtype in DTYPES.items()}
    found["bf16"] = rng.normal(size=(2, 3)).astype(ml_dtypes.bfloat16)
    return {**found, "scalar": np.array(0.5), "empty": np.zeros((4, 0), np.float32)}


def content(entries, data=b"", *, length=None, text=None):
    """A file; `length` is what it claims of its header, `text` the header where `entries` cannot make it."""
    text = json.dumps(entries).encode() if text is None else text
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape=(2,), place=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(place)}


def write(path, *arguments, **claims):
    path.write_bytes(content(*arguments, **claims))
    return path


# --- sound files -------------------------------------------------------------------------------------------


def test_open_reads_what_the_library_writes(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file(tensors(), path, metadata={"format": "pt", "naïve": "☃"})
    file = cbquant.open(path)
    assert dict(file.metadata) == {"format": "pt", "naïve": "☃"}
    assert set(file) == set(tensors())
    for name, expected in tensors().items():
        ours, info = file[name], file.infos[name]
        assert ours.shape == info.shape == expected.shape
        assert info.nbytes == expected.nbytes
        assert path.read_bytes()[info.offset : info.offset + info.nbytes] == expected.tobytes()
        if name == "bf16":
            np.testing.assert_array_equal(np.asarray(ours), expected.astype(np.float32))
            continue
        assert ours.dtype == expected.dtype
        assert not ours.flags.writeable
        np.testing.assert_array_equal(ours, expected)
        assert info.format == name or name in ("scalar", "empty")
    tags = {name: file.infos[name].tag for name in ("f32", "bf16", "u8", "bool")}
    assert tags == {"f32": 0, "bf16": 30, "u8": -1, "bool": -1}
    assert pickle.loads(pickle.dumps(file))["i64"].tolist() == tensors()["i64"].tolist()
    assert "bool" in repr(file)


def test_tensors_keep_the_order_of_the_header(tmp_path):
    entries = {"b": entry(place=(8, 16)), "a": entry(place=(0, 8))}
    file = cbquant.open(write(tmp_path / "x", entries, struct.pack("<4f", 1, 2, 3, 4)))
    assert list(file) == ["b", "a"]
    assert file["b"].tolist() == [3, 4]


@pytest.mark.parametrize("padding", range(8))
def test_data_may_begin_anywhere(tmp_path, padding):
    text = json.dumps({"a": entry(), "q": entry("BF16", (4,), (8, 16))}).encode() + b" " * padding
    file = cbquant.open(write(tmp_path / "x", None, struct.pack("<2f4H", 1, 2, *[0x3F80] * 4), text=text))
    assert file["a"].tolist() == [1, 2]
    assert np.asarray(file["q"]).tolist() == [1] * 4


@pytest.mark.parametrize(
    ("dtype", "shape", "nbytes"),
    [
        ("F8_E4M3FNUZ", (2, 3), 6),
        ("F8_E8M0", (4,), 4),
        ("F4", (2, 3), 3),
        ("F6_E2M3", (4,), 3),
        ("C64", (1,), 8),
        ("F2", (9,), 5),
    ],
)
def test_other_dtypes_are_listed_but_not_decoded(tmp_path, capsys, dtype, shape, nbytes):
    path = write(tmp_path / "x", {"w": entry(dtype, shape, (0, nbytes))}, bytes(range(nbytes)))
    file = cbquant.open(path)
    info, tensor = file.infos["w"], file["w"]
    assert (info.format, info.tag, info.shape, info.nbytes) == (f"unknown_{dtype}", -1, shape, nbytes)
    assert tensor.raw.tobytes() == bytes(range(nbytes))
    with pytest.raises(
        ValueError, match=f"tensor has dtype {dtype}, which cbquant does not know: it cannot be decoded"
    ):
        np.asarray(tensor)
    assert run_json(capsys, "inspect", path)["tensors"][0]["format"] == f"unknown_{dtype}"
    assert f"tensor 'w' is of the unknown dtype {dtype}" in run_error(capsys, "dequant", path, "-o", tmp_path / "out")


def test_a_bool_is_0_or_1(tmp_path):
    file = cbquant.open(write(tmp_path / "x", {"w": entry("BOOL", (3,), (0, 3))}, b"\0\1\2"))
    with pytest.raises(ValueError, match="a bool is 0 or 1, got 2"):
        file["w"]


def test_the_command_line_takes_them(tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    save_file(tensors(), path)
    listed = {tensor["name"]: tensor for tensor in run_json(capsys, "inspect", path)["tensors"]}
    assert (listed["u16"]["bits_per_weight"], listed["bool"]["bytes"]) == (16, 15)
    assert run_json(capsys, "validate", path)["tensors"] == 6
    assert main(["dequant", str(path), "-o", str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as arrays:
        for name, expected in tensors().items():
            np.testing.assert_array_equal(arrays[name], expected.astype(np.float32))
            assert arrays[name].dtype == (expected.dtype if expected.dtype.kind in "iub" else np.float32)


# --- models in several files -------------------------------------------------------------------------------


@pytest.fixture
def shards(tmp_path):
    """Two files of a model, and their index."""
    names = ["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors"]
    for number, name in enumerate(names):
        save_file({f"t{number}": np.full(3, number, np.float32)}, tmp_path / name, metadata={"shard": str(number)})
    index = {"metadata": {"total_size": 24}, "weight_map": {"t1": names[1], "t0": names[0]}}
    (tmp_path / "m.safetensors.index.json").write_text(json.dumps(index, indent=2))
    return tmp_path


@pytest.mark.parametrize(
    "name", ["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors", "m.safetensors.index.json"]
)
def test_any_shard_and_the_index_open_the_model(shards, name):
    file = cbquant.open(shards / name)
    assert {key: tensor.tolist() for key, tensor in file.items()} == {"t0": [0] * 3, "t1": [1] * 3}
    assert list(file) == ["t0", "t1"]
    assert [path.name for path in file.paths] == ["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors"]
    assert file.metadata["shard"] == "0"


def test_an_index_may_give_any_names(shards):
    os.rename(shards / "m-00001-of-00002.safetensors", shards / "first")
    os.rename(shards / "m-00002-of-00002.safetensors", shards / "second")
    (shards / "index").write_text('\n {"weight_map": {"t0": "first", "t1": "second"}}')
    assert list(cbquant.open(shards / "index")) == ["t0", "t1"]


def test_shards_that_are_missing_or_do_not_fit(shards):
    second = shards / "m-00002-of-00002.safetensors"
    kept = second.read_bytes()
    second.unlink()
    for name in ("m-00001-of-00002.safetensors", "m.safetensors.index.json"):
        with pytest.raises(FileNotFoundError, match="missing, one of the 2 shards"):
            cbquant.open(shards / name)
    second.write_bytes((shards / "m-00001-of-00002.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"tensor 't0' stands in .*00001-of-00002\.safetensors too"):
        cbquant.open(shards / "m-00001-of-00002.safetensors")
    second.write_bytes(kept)
    (shards / "m-00003-of-00002.safetensors").write_bytes(kept)
    with pytest.raises(ValueError, match="there is no shard 3 of 2"):
        cbquant.open(shards / "m-00003-of-00002.safetensors")


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        (None, "expected an index of safetensors files, with a weight_map"),
        ({}, "expected an index of safetensors files, with a weight_map"),
        ([], "expected an index of safetensors files, with a weight_map"),
        ({"t0": "../m"}, r"tensor 't0': expected the name of a file, got '\.\./m'"),
        ({"t0": "/etc/passwd"}, "expected the name of a file, got '/etc/passwd'"),
        ({"t0": ".."}, "expected the name of a file"),
        ({"t0": ""}, "expected the name of a file"),
        ({"t0": "a\0b"}, "expected the name of a file"),
        ({"t0": 3}, "expected the name of a file, got '3'"),
        ({"t9": "m-00001-of-00002.safetensors"}, "tensor 't9' does not stand in 'm-00001"),
        ({"t1": "m-00001-of-00002.safetensors", "t0": "m-00002-of-00002.safetensors"}, "does not stand in"),
    ],
)
def test_an_index_that_lies(shards, weight_map, message):
    path = shards / "index.json"
    path.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(ValueError, match=message):
        cbquant.open(path)


# --- hostile files -----------------------------------------------------------------------------------------

TWO = {"a": entry(), "b": entry(place=(8, 16))}
HOSTILE = {
    "a header past the end": (
        content(TWO, bytes(16), length=2**20),
        "expected a header of 1048576 bytes, the file has",
    ),
    "a header too large": (
        content(TWO, bytes(16), length=100_000_001),
        "a header of 100000001 bytes, at most 100000000",
    ),
    "a huge header": (content(TWO, bytes(16), length=2**63), "expected a file that begins with"),
    "an empty header": (content({}, length=0), "expected a header|header: Expecting value"),
    "a short header": (content(TWO, bytes(16), length=9), "header: "),
    "no JSON": (content({}, text=b"{nonsense}"), "header: Expecting property name"),
    "no object": (content({}, text=b"{}[]"), "header: Extra data"),
    "no UTF-8": (content({}, text=b'{"\xff": 1}'), "header: 'utf-8' codec can't decode"),
    "deep": (content({}, text=b'{"a":' + b"[" * 200_000), "header: nested too deeply"),
    "long number": (content({}, text=b'{"a":' + b"9" * 9999 + b"}"), "header: Exceeds the limit|'a': expected a JSON"),
    "a name twice": (content({}, text=b'{"a": 1, "a": 2}'), "header: 'a' stands twice"),
    "a field twice": (content({}, text=b'{"a": {"dtype": "F32", "dtype": "F16"}}'), "'dtype' stands twice"),
    "half a character": (content({"\ud800": entry()}, bytes(8)), "codec can't encode"),
    "metadata of numbers": (content({"__metadata__": {"a": 1}}), "__metadata__: expected names and strings"),
    "metadata that is none": (content({"__metadata__": "a"}), "__metadata__: expected names and strings"),
    "half a character of metadata": (content({"__metadata__": {"a": "\udfff"}}), "__metadata__: .*can't encode"),
    "no entry": (content({"a": 3}), "tensor 'a': expected a JSON object, got int"),
    "no dtype": (
        content({"a": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
        "dtype: expected a name, got 'None'",
    ),
    "a dtype of no letters": (content({"a": entry("\x1b[m")}, bytes(8)), "dtype: expected a name"),
    "no shape": (
        content({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, bytes(8)),
        "shape: expected at most 32 numbers",
    ),
    "a negative dimension": (content({"a": entry(shape=[-2])}, bytes(8)), "shape: expected at most 32 numbers"),
    "a fraction": (content({"a": entry(shape=[2.0])}, bytes(8)), "shape: expected at most 32 numbers"),
    "true": (content({"a": entry(shape=[True])}, bytes(4)), "shape: expected at most 32 numbers"),
    "33 dimensions": (content({"a": entry(shape=[1] * 33, place=(0, 4))}, bytes(4)), "shape: expected at most 32"),
    "a product that wraps": (content({"a": entry(shape=[2**32, 2**32])}, bytes(8)), "larger than any array"),
    "a product that wraps to 2": (content({"a": entry(shape=[2**62 + 1, 2])}, bytes(8)), "larger than any array"),
    "a wrong number of bytes": (
        content({"a": entry(shape=[3])}, bytes(8)),
        r"expected 12 bytes for shape \(3,\) of F32, got 8",
    ),
    "half a byte": (content({"a": entry("F4", [3], (0, 2))}, bytes(2)), "12 bits of F4 are no whole bytes"),
    "one offset": (content({"a": entry(place=[8])}, bytes(8)), "data_offsets: expected a begin and an end"),
    "offsets turned round": (
        content({"a": entry(place=(8, 0))}, bytes(8)),
        "data_offsets: expected a begin and an end",
    ),
    "offsets past the end": (content({"a": entry()}, bytes(4)), r"ends at byte \d+, past the file"),
    "huge offsets": (content({"a": entry(place=(2**62, 2**62 + 8))}, bytes(8)), "leaves a gap before it"),
    "offsets past 64 bits": (content({"a": entry(place=(2**64, 2**64 + 8))}, bytes(8)), "expected a begin and an end"),
    "overlap": (content({"a": entry(), "b": entry(place=(4, 12))}, bytes(12)), "'b': data_offsets: .*overlaps another"),
    "the same place": (content({"a": entry(), "b": entry()}, bytes(8)), "overlaps another tensor"),
    "a gap": (content({"a": entry(), "b": entry(place=(12, 20))}, bytes(20)), "'b': data_offsets: .*leaves a gap"),
    "a gap in front": (content({"a": entry(place=(8, 16))}, bytes(16)), "'a': data_offsets: .*leaves a gap"),
    "more behind": (content(TWO, bytes(17)), "1 bytes behind the last tensor belong to none"),
    "an empty one past the end": (content({"a": entry(shape=[0], place=(9, 9))}), "ends at byte .*, past the file"),
}


@pytest.mark.parametrize(("data", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_refused(tmp_path, data, message):
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message):
        cbquant.open(path)
    if "32" not in message:  # of dimensions: NumPy's limit, not the container's
        with pytest.raises(safetensors.SafetensorError):
            safetensors.safe_open(path, "np")


def test_every_cut_is_refused(tmp_path):
    path, whole = tmp_path / "x.safetensors", content(TWO, bytes(16))
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"x\.safetensors: "):
            cbquant.open(path)


@pytest.mark.skipif(sys.platform != "linux", reason="needs sparse files: this one claims 1 TiB")
def test_a_sparse_file_is_refused_promptly(tmp_path):
    path = write(tmp_path / "x", TWO, bytes(16))
    os.truncate(path, 2**40)
    with pytest.raises(ValueError, match="bytes behind the last tensor belong to none"):
        cbquant.open(path)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_mutated_files_are_read_or_refused(tmp_path_factory, data):
    whole = bytearray(content({"__metadata__": {"a": "b"}, **TWO, "c": entry("BF16", (2, 2), (16, 24))}, bytes(24)))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "mutated.safetensors"
    path.write_bytes(whole)
    try:
        file = cbquant.open(path)
    except (ValueError, FileNotFoundError):
        return
    for name, info in file.infos.items():
        if not info.format.startswith(("unknown_", "bool")):
            assert np.asarray(file[name]).shape == info.shape
