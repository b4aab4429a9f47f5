"""``python -m cbquant quantize``."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

import cbquant
from cbquant.cli import main
from tests import convert_files as cf
from tests.cli_files import run_error, run_json


@pytest.fixture
def model(tmp_path):
    return cf.write_gguf(tmp_path / "model.gguf", {**cf.arrays(), "odd.weight": np.ones((2, 33), np.float32)})


@pytest.fixture
def dst(tmp_path):
    return tmp_path / "new.gguf"


def test_the_table_and_the_notes(model, dst, capsys):
    argv = ["quantize", model, dst, "--type", "Q8_0", "--map", "attn_v=q4_0", "--map", "output.weight=drop"]
    assert main(list(map(str, argv))) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert [line.split()[:2] for line in lines[2:6]] == [["q8_0", "3"], ["q4_0", "1"], ["f32", "3"], ["f16", "1"]]
    assert lines[0].split() == ["format", "tensors", "weights", "bytes", "before", "bytes", "after", "bits/weight"]
    total = lines[-2].split()
    assert total[:2] == ["file", "8"]
    assert total[3:5] == [f"{model.stat().st_size:,}", f"{dst.stat().st_size:,}"]
    assert lines[-1].startswith(f"{dst}: {dst.stat().st_size:,} bytes in ")
    assert captured.err.splitlines() == [
        "cbquant: f16 in place of q8_0, because of rows of 33: 'odd.weight'",
        "cbquant: left out: 'output.weight'",
    ]
    assert cf.formats(cbquant.open(dst))[cf.V] == "q4_0"


def test_json(model, dst, capsys):
    report = run_json(capsys, "quantize", model, dst, "--type", "q8_0")
    assert report["destination"] == str(dst)
    assert (report["bytes_before"], report["bytes_after"]) == (model.stat().st_size, dst.stat().st_size)
    assert {fmt["format"]: fmt["tensors"] for fmt in report["formats"]} == {"q8_0": 5, "f32": 3, "f16": 1}
    odd = next(tensor for tensor in report["tensors"] if tensor["name"] == "odd.weight")
    assert (odd["source"], odd["format"], odd["wanted"], odd["is_fallback"]) == ("f32", "f16", "q8_0", True)
    assert (report["dropped"], report["resumed"]) == ([], 0)


def test_options_are_passed_on(model, dst, capsys, monkeypatch):
    calls = []
    monkeypatch.setattr(cbquant, "quantize", cf.fake_quantize(calls))
    argv = ["quantize", model, dst, "--type", "q4_0", "--method", "mse", "--threads", "3", "--imatrix", "ones"]
    assert main(list(map(str, argv))) == 0
    assert {call[3:] for call in calls[1:]} == {("mse", "raise", 3)}


def test_architecture_is_for_safetensors(tmp_path, dst, capsys):
    save_file = pytest.importorskip("safetensors.numpy").save_file
    src = tmp_path / "model.safetensors"
    save_file({"a.weight": np.ones((2, 32), np.float32)}, src)
    assert main(["quantize", str(src), str(dst), "--type", "q4_0", "--architecture", "llama"]) == 0
    assert cbquant.open(dst).metadata["general.architecture"] == "llama"


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["{src}"], "required: DST, --type"),
        (["{src}", "{dst}"], "required: --type"),
        (["{src}", "{dst}", "--type", "q9"], "argument --type: unknown format 'q9'"),
        (["{src}", "{dst}", "--type", "i8"], "argument --type: expected a block format or f32, f16, bf16, got i8"),
        (["{src}", "{dst}", "--type", "q4_0", "--method", "best"], "invalid choice: 'best'"),
        (["{src}", "{dst}", "--type", "q4_0", "--threads", "0"], "expected a whole number from 1 up"),
        (["{src}", "{dst}", "--type", "q4_0", "--map", "attn_v"], "map: expected 'pattern=format', got 'attn_v'"),
        (["{src}", "{dst}", "--type", "q4_0", "--map", "zz=q8_0"], "map: no tensor that can be quantized"),
        (["{src}", "{dst}", "--type", "q4_0", "--imatrix", "none.dat"], "none.dat: No such file or directory"),
        (["{src}", "{dst}", "--type", "q4_0", "--imatrix", "{src}"], "expected an importance matrix"),
        (["{src}", "{dst}", "--type", "q4_0", "--architecture", "x"], "architecture: "),
        (["{src}", "{src}", "--type", "q4_0", "--force"], "is a file of the source"),
        (["{src}", "{old}", "--type", "q4_0"], "old.gguf: exists already (--force overwrites)"),
        (["{src}", "{folder}", "--type", "q4_0"], "is a folder"),
        (["{old}", "{dst}", "--type", "q4_0"], "expected a file that begins with"),
    ],
)
def test_bad_usage_is_one_line(model, dst, tmp_path, capsys, argv, text):
    (tmp_path / "old.gguf").write_bytes(b"old")
    words = {"src": model, "dst": dst, "old": tmp_path / "old.gguf", "folder": tmp_path}
    assert text in run_error(capsys, "quantize", *(word.format(**words) for word in argv))
    assert sorted(os.listdir(tmp_path)) == ["model.gguf", "old.gguf"]


@pytest.mark.parametrize("flags", [[], ["--force"]])
def test_no_pipe_or_device_is_overwritten(model, dst, capsys, flags):
    os.mkfifo(dst)
    assert "new.gguf is no regular file" in run_error(capsys, "quantize", model, dst, "--type", "q4_0", *flags)
    assert dst.is_fifo()


def test_force_overwrites(model, dst, capsys):
    dst.write_bytes(b"old")
    assert main(["quantize", str(model), str(dst), "--type", "q4_0", "--force"]) == 0
    assert len(cbquant.open(dst)) == 9


def test_without_the_library_the_extra_is_named(model, dst, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert "cbquant[convert]" in run_error(capsys, "quantize", model, dst, "--type", "q4_0")


@pytest.mark.parametrize("flag", [[], ["--no-progress"]])
def test_progress_is_for_terminals(model, dst, capsys, monkeypatch, flag):
    from cbquant.cli import progress

    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(progress, "is_terminal", lambda stream: True)
    monkeypatch.setattr(progress, "_has_rich", lambda: False)
    assert main(["quantize", str(model), str(dst), "--type", "q4_0", *flag]) == 0
    err = capsys.readouterr().err
    assert ("quantizing 100 %, 0:00 left" in err) == (not flag)
