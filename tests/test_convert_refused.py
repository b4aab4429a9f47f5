"""`cbquant.convert.quantize_file`: what is refused, as a rule before anything is written."""

from __future__ import annotations

import os
import sys

import gguf
import numpy as np
import pytest

import cbquant
from cbquant.convert import _quantize, quantize_file
from tests import convert_files as cf
from tests import gguf_bytes as gb


@pytest.fixture
def model(tmp_path):
    return cf.write_gguf(tmp_path / "model.gguf", cf.arrays(), [("text", "two\nlines")])


@pytest.fixture
def dst(tmp_path):
    return tmp_path / "new.gguf"


@pytest.fixture
def fake(monkeypatch):
    """Every format has an encoder, and its calls are noted."""
    calls = []
    monkeypatch.setattr(cbquant, "quantize", cf.fake_quantize(calls))
    return calls


def test_types_that_the_library_cannot_write(model, dst, fake, monkeypatch):
    sizes = {kind: size for kind, size in gguf.GGML_QUANT_SIZES.items() if int(kind) != 40}
    monkeypatch.setattr(gguf, "GGML_QUANT_SIZES", sizes)
    writable = {int(kind) for kind in sizes}
    lacking = [f for f in cbquant.formats() if f.tag not in writable]
    assert {"q2_0", "nvfp4"} <= {f.name for f in lacking}
    for f in lacking:
        with pytest.raises(
            ValueError, match=f"{f.name} cannot be written by the installed version of the gguf library"
        ):
            quantize_file(model, dst, f.name)
    assert sorted(os.listdir(dst.parent)) == ["model.gguf"]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"fmt": "q9"}, ValueError, "fmt: unknown format 'q9'"),
        ({"fmt": 4}, TypeError, "fmt: expected the name of a format"),
        ({"fmt": "i8"}, ValueError, "fmt: expected a block format or f32, f16, bf16, got i8"),
        ({"method": "best"}, ValueError, "method"),
        ({"nonfinite": "ignore"}, ValueError, "nonfinite"),
        ({"executor": 3}, TypeError, r"executor: expected a concurrent\.futures\.Executor, got int"),
        ({"in_flight": 0}, ValueError, "in_flight: expected a whole number from 1, got 0"),
        ({"in_flight": 1.5}, TypeError, "in_flight: expected a whole number from 1, got float"),
        ({"architecture": "llama"}, ValueError, "architecture: .* is a GGUF file, which has its own"),
        ({"map": 3}, TypeError, "map: expected a dict or a list of 'pattern=format', got 3"),
        ({"src": "absent.gguf"}, FileNotFoundError, "absent"),
        ({"dst": "model.gguf"}, ValueError, "dst: .*model.gguf is a file of the source"),
        ({"dst": "model.gguf", "overwrite": True}, ValueError, "dst: .*model.gguf is a file of the source"),
        ({"dst": "old.gguf"}, FileExistsError, "dst: .*old.gguf exists already; overwrite=True"),
        ({"dst": "folder"}, IsADirectoryError, "dst: .*folder is a folder"),
        ({"dst": "none/new.gguf"}, FileNotFoundError, "dst: .*none is no folder"),
    ],
)
def test_bad_arguments_write_nothing(model, tmp_path, monkeypatch, change, error, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "old.gguf").write_bytes(b"old")
    arguments = {"src": "model.gguf", "dst": "new.gguf", "fmt": "q4_0", **change}
    with pytest.raises(error, match=message):
        quantize_file(arguments.pop("src"), arguments.pop("dst"), arguments.pop("fmt"), **arguments)
    assert sorted(os.listdir(tmp_path)) == ["folder", "model.gguf", "old.gguf"]
    assert (tmp_path / "old.gguf").read_bytes() == b"old"


def test_overwrite_replaces_the_file(model, dst):
    dst.write_bytes(b"old")
    quantize_file(model, dst, "q4_0", overwrite=True)
    assert len(cbquant.open(dst)) == 8


def test_unknown_types_are_refused_by_name(tmp_path, dst):
    src = tmp_path / "m.gguf"
    src.write_bytes(
        gb.gguf([], [gb.info("odd", [4], gb.UNKNOWN, 0), gb.info("a.weight", [32, 2], gb.F32, 32)], bytes(288))
    )
    with pytest.raises(ValueError, match="tensor 'odd' is unknown_99, which no GGUF file can hold; map: 'drop'"):
        quantize_file(src, dst, "q4_0")
    quantize_file(src, dst, "q4_0", map={"odd": "drop"})
    assert list(cbquant.open(dst)) == ["a.weight"]


@pytest.mark.parametrize(
    ("place", "value", "fmt", "message"),
    [
        (
            (3, 5, 7),
            np.nan,
            "q8_0",
            r"'blk.0.ffn_up_exps.weight': nan at \(3, 5, 7\) of shape \(4, 16, 64\): expected fin",
        ),
        ((0, 15, 63), -np.inf, "f16", r"-inf at \(0, 15, 63\) of shape .*: expected finite numbers"),
        ((1, 0, 0), 7e4, "f16", r"70000.0 at \(1, 0, 0\) of shape .*: past the range of f16"),
        ((2, 1, 1), np.inf, "bf16", r"inf at \(2, 1, 1\) of shape .*: expected finite numbers"),
    ],
)
def test_weights_that_are_not_finite(tmp_path, dst, monkeypatch, place, value, fmt, message):
    monkeypatch.setattr(_quantize, "PIECE_ELEMENTS", 7 * 64)
    arrays = cf.arrays()
    arrays[cf.EXPERTS][place] = value
    src = cf.write_gguf(tmp_path / "m.gguf", arrays)
    with pytest.raises(ValueError, match=message):
        quantize_file(src, dst, fmt)
    assert sorted(os.listdir(tmp_path)) == ["m.gguf"]
    quantize_file(src, dst, fmt, nonfinite="allow")


@pytest.mark.skipif(sys.platform != "linux", reason="needs sparse files: this one claims 2 GiB of padding")
def test_alignment_is_bounded(tmp_path, dst):
    def write(alignment):
        head = gb.gguf(
            [gb.pair("general.alignment", gb.UINT32, gb.u32(alignment))], [gb.info("a.weight", [32, 2], gb.F32, 0)]
        )
        src = tmp_path / "m.gguf"
        src.write_bytes(head)
        os.truncate(src, alignment)
        with src.open("ab") as stream:
            stream.write(bytes(256))
        return src

    with pytest.raises(ValueError, match=r"m\.gguf: general\.alignment: at most 1048576 is written, got 2147483648"):
        quantize_file(write(2**31), dst, "q8_0")
    assert sorted(os.listdir(tmp_path)) == ["m.gguf"]
    quantize_file(write(2**20), dst, "q8_0")
    assert cbquant.open(dst).infos["a.weight"].offset == 2**20
    assert dst.stat().st_blocks * 512 < 2**18


def test_the_sizes_of_types_are_looked_up_once(tmp_path, dst, monkeypatch):
    class Sizes(dict):
        calls = 0

        def items(self):
            Sizes.calls += 1
            return super().items()

    monkeypatch.setattr(gguf, "GGML_QUANT_SIZES", Sizes(gguf.GGML_QUANT_SIZES))
    tensors = {f"{number}.weight": np.ones((1, 32), np.float32) for number in range(20)}
    quantize_file(cf.write_gguf(tmp_path / "m.gguf", tensors), dst, "q8_0")
    assert Sizes.calls == 1


def test_blocks_without_importance_are_told_once(model, dst, monkeypatch):
    monkeypatch.setattr(_quantize, "PIECE_ELEMENTS", 64 * 4)
    some = np.arange(64) >= 32
    with pytest.warns(UserWarning, match="imatrix: all values are zero over whole blocks of") as caught:
        quantize_file(model, dst, "q4_0", imatrix={cf.V: some.astype(int), cf.Q: np.ones(64)})
    assert [warning.filename for warning in caught] == [__file__]
    assert f"blocks of {cf.V!r}, which" in str(caught[0].message)


def test_without_the_library_the_extra_is_named(model, dst, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match=r"cbquant\[convert\]"):
        quantize_file(model, dst, "q4_0")
