"""``python -m cbquant compare``."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import cbquant
from cbquant.cli import main
from tests import convert_files as cf
from tests.cli_files import run_error, run_json

NAMES = list(cf.arrays())


@pytest.fixture
def files(tmp_path):
    """A model, and what quantizing has made of it."""
    a = cf.write_gguf(tmp_path / "a.gguf", cf.arrays())
    b = tmp_path / "b.gguf"
    cbquant.convert.quantize_file(a, b, "q4_0", map={"attn_v": "q8_0"}, progress=False)
    return a, b


def lines(capsys, *argv, code=0):
    assert main(["compare", *map(str, argv)]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


def test_the_table(files, capsys):
    out = lines(capsys, *files)
    assert " ".join(out[0].split()) == "tensor a b RMSE relative error cosine worst block at its error note"
    assert [line.split()[0] for line in out[2:-1]] == NAMES
    row = out[2 + NAMES.index(cf.Q)].split()
    expected = next(row for row in cbquant.compare(*files) if row.name == cf.Q)
    assert row[1:6] == [
        "f16",
        "q4_0",
        f"{expected.rmse:.4g}",
        f"{expected.relative_error:.4g}",
        f"{expected.cosine:.6f}",
    ]
    assert out[-1] == f"{files[1]} against {files[0]}: {cbquant.compare(*files).summary()}"


def test_json(files, capsys):
    report = run_json(capsys, "compare", *files, "--block", "64", "--threads", "2")
    assert (report["a"], report["b"], report["block"]) == (str(files[0]), str(files[1]), 64)
    rows = cbquant.compare(*files, block=64)
    assert [row["relative_error"] for row in report["tensors"]] == [row.relative_error for row in rows]
    assert [row["worst_block"] for row in report["tensors"]] == [row.worst_block for row in rows]
    assert "beyond" not in report


def test_names_and_orders(files, capsys):
    out = lines(capsys, *files, "--names", "*attn*", "--names", "output.weight", "--sort", "error")
    shown = [line.split()[0] for line in out[2:-1]]
    assert set(shown) == {name for name in NAMES if "attn" in name} | {"output.weight"}
    errors = {row.name: row.relative_error for row in cbquant.compare(*files)}
    assert [errors[name] for name in shown] == sorted((errors[name] for name in shown), reverse=True)
    assert [line.split()[0] for line in lines(capsys, *files, "--sort", "name")[2:-1]] == sorted(NAMES)


@pytest.mark.parametrize(("limit", "code", "beyond"), [("1", 0, 0), ("0.05", 1, 4), ("0", 1, 5)])
def test_max_error_is_told_by_the_exit_code(files, capsys, limit, code, beyond):
    out = lines(capsys, *files, "--max-error", limit, code=code)
    assert out[-1] == f"{beyond} of 8 tensors beyond a relative error of {float(limit):g}, or not compared"
    report = run_json(capsys, "compare", *files, "--max-error", limit, code=code)
    assert (report["max_error"], len(report["beyond"])) == (float(limit), beyond)


def test_findings_without_a_limit_are_no_failure(damaged, strange, tmp_path, capsys):
    out = lines(capsys, damaged, strange)
    assert [line.split("  ")[-1].strip() for line in out[2:-1]] == ["only in a"] * 3 + ["only in b"] * 2
    out = lines(capsys, damaged, damaged)
    assert "NaN or infinite: 1 in a, 1 in b; left out" in out[2 + 1]
    assert out[-1].endswith("3 tensors: 3 equal, 0 measured; NaN or infinite elements in 2")
    assert lines(capsys, damaged, damaged, "--max-error", "0")[-1].startswith("0 of 3 tensors")
    sound = cf.write_gguf(tmp_path / "sound.gguf", {"values": np.array([1, 2, 3, 4], np.float32)})
    assert lines(capsys, sound, damaged, "--max-error", "1", "--names", "values", code=1)


def test_names_of_a_file_do_no_harm(hostile, capsys):
    out = "\n".join(lines(capsys, hostile, hostile))
    assert "\x1b" not in out
    assert r"two\nlines" in out


def test_a_plot(files, tmp_path, capsys):
    picture = tmp_path / "errors.png"
    lines(capsys, *files, "--plot", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    picture.write_bytes(b"old")
    assert "exists already" in run_error(capsys, "compare", *files, "--plot", picture)
    assert picture.read_bytes() == b"old"
    lines(capsys, *files, "--plot", picture, "--force")
    assert picture.read_bytes() != b"old"


def test_without_matplotlib_the_extra_is_named(files, tmp_path, capsys, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "cbquant[plot]" in run_error(capsys, "compare", *files, "--plot", tmp_path / "x.png")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["{a}"], "required: B"),
        (["{a}", "{a}x"], "a.ggufx: No such file or directory"),
        (["{a}", "{text}"], "expected a file that begins with"),
        (["{a}", "{b}", "--names", "blk.9"], "names: no tensor is named or matches 'blk.9'"),
        (["{a}", "{b}", "--sort", "size"], "invalid choice: 'size'"),
        (["{a}", "{b}", "--block", "0"], "argument --block: expected a whole number from 1 up, got '0'"),
        (["{a}", "{b}", "--block", "9999999"], "block: expected 1 to 1048576, got 9999999"),
        (["{a}", "{b}", "--max-error", "-1"], "argument --max-error: expected a number from 0 up, got '-1'"),
        (["{a}", "{b}", "--max-error", "nan"], "expected a number from 0 up, got 'nan'"),
        (["{a}", "{b}", "--plot", "{folder}/none/x.png"], "none: expected a folder"),
        (["{a}", "{b}", "--plot", "{folder}/x.abc"], "expected a suffix such as .png, .svg, .pdf, got '.abc'"),
        (["{a}", "{b}", "--plot", "{folder}"], "is a folder"),
    ],
)
def test_bad_usage_is_one_line(files, tmp_path, capsys, argv, text):
    (tmp_path / "text").write_bytes(b"text")
    words = {"a": files[0], "b": files[1], "text": tmp_path / "text", "folder": tmp_path}
    assert text in run_error(capsys, "compare", *(word.format(**words) for word in argv))


@pytest.mark.parametrize("names", [[], ["--names", "*attn*"]])
def test_progress_is_for_terminals(files, capsys, monkeypatch, names):
    from cbquant.cli import progress

    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(progress, "is_terminal", lambda stream: True)
    monkeypatch.setattr(progress, "_has_rich", lambda: False)
    assert main(["compare", *map(str, files), *names]) == 0
    assert "comparing 100 %, 0:00 left" in capsys.readouterr().err
