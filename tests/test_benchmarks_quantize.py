"""The benchmark of encoders: its arithmetic, and runs end to end on tiny sizes. Nothing about speed."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest

import cbquant
from benchmarks import groups, report
from benchmarks.dequant.cache import kernels
from benchmarks.quantize import command, encoders, first_call, inputs, speed, targets
from benchmarks.quantize.encoders import WITH, WITHOUT
from benchmarks.quantize.plan import Plan
from cbquant import _formats
from tests.oracles import Ggml

BLOCK_FORMATS = [f for f in cbquant.formats() if f.kind != "plain"]
ENCODED = [f for f in BLOCK_FORMATS if encoders.has_encoder(f)]
TINY = Plan(
    formats=tuple(BLOCK_FORMATS),
    rounds=2,
    sample_seconds=0,
    k=256,
    peer_seconds=0,
    rows=(2, 3),
    many_rows=3,
    processes=2,
)
needs_ggml = pytest.mark.skipif(not Ggml.available(), reason="no libggml-base: install pywhispercpp")


def run(capsys, tmp_path, *argv, tiny=TINY):
    code = command.main([*argv, "--out", str(tmp_path)], tiny)
    return code, capsys.readouterr().out


def sections(tmp_path):
    return json.loads((tmp_path / "quantize.json").read_text())["sections"]


# --- rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", inputs.DISTRIBUTIONS)
def test_rows_are_what_they_are_called(name):
    x = inputs.draw(name, 50, 1024)
    assert (x.dtype, x.shape, x.flags.c_contiguous, x.ctypes.data % 64) == (np.float32, (50, 1024), True, 0)
    assert np.isfinite(x).all()
    assert np.array_equal(x, inputs.draw(name, 50, 1024))
    zeros, largest = (x == 0).mean(), np.abs(x).max(axis=1)
    assert (0.75 < zeros < 0.85) == (name == "sparse")
    assert (np.ptp(x, axis=1) == 0).all() == (name == "constant")
    assert (x == x.round()).all() == (name == "integers")
    assert (largest == 1000).all() == (name == "spike")
    assert len(np.unique(x, axis=0)) == 50


def test_importance_differs_from_column_to_column():
    weights = inputs.importance(512)
    assert (weights.dtype, weights.shape) == (np.float32, (512,))
    assert (weights > 0).all()
    assert len(np.unique(weights)) > 500


# --- encoders ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", ENCODED, ids=lambda f: f.name)
def test_each_set_of_kernels_encodes_all_of_the_rows(fmt):
    x = inputs.draw("dense", 3, 256)
    for name, weights in encoders.cases(fmt, 256):
        assert (name == WITH) == (weights is not None)
        expected = cbquant.quantize(x, fmt.name, weights)
        for kernel in kernels():
            out = encoders.room(fmt, x)
            encoders.own_call(fmt, x, weights, out, kernel)()
            assert np.array_equal(out, expected)


def test_which_formats_are_measured_with_what():
    found = {fmt.name: [name for name, _ in encoders.cases(fmt, 256)] for fmt in ENCODED}
    assert found["q8_0"] == found["mxfp4"] == [WITHOUT]
    assert found["q4_0"] == found["iq4_xs"] == [WITHOUT, WITH]
    assert found["iq2_xs"] == [WITH]


@needs_ggml
@pytest.mark.parametrize("name", ["q4_0", "q6_k", "iq4_nl", "mxfp4"])
def test_ggml_encodes_the_same_rows(name):
    fmt = _formats.get(name)
    for distribution in inputs.DISTRIBUTIONS:
        x = inputs.draw(distribution, 2, 256)
        for _, weights in encoders.cases(fmt, 256):
            out, expected = encoders.room(fmt, x), cbquant.quantize(x, name, weights)
            encoders.ggml_call(fmt, x, weights, out)()
            encoders.check_same(fmt, distribution, expected, out, "cbquant")
    with pytest.raises(RuntimeError, match=rf"{name}, spike: avx2 and ggml encode the same rows to different bytes"):
        encoders.check_same(fmt, "spike", expected ^ 1, out, "avx2")


def test_a_format_that_ggml_lacks_has_no_peer():
    fmt = _formats.get("q2_0")
    x = inputs.draw("dense", 1, 256)
    assert encoders.ggml_call(fmt, x, None, encoders.room(fmt, x)) is None
    assert speed.row_count(fmt, None, TINY) == 3


def test_as_many_rows_as_the_time_lets(monkeypatch):
    clock = iter([0.0, 1.0])  # a row lasts a second
    monkeypatch.setattr(speed.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(speed, "ggml_call", lambda *args: int)
    assert speed.row_count(_formats.get("q4_0"), None, replace(TINY, peer_seconds=17.5, rows=(2, 64))) == 17


# --- arithmetic --------------------------------------------------------------------------------------------


@pytest.fixture
def measured():
    """ggml takes 8 seconds of everything, the kernels in use 1, others 4."""
    in_use = cbquant.info()["kernels"]
    seconds = {"other": 4.0, in_use: 1.0, "ggml": 8.0}
    base = {"importance": WITHOUT, "elements": 4_000_000, "rows": 2}
    rows = [
        base | {"format": fmt, "distribution": kind, "seconds": seconds}
        for fmt in ("q4_0", "iq4_nl")
        for kind in ("dense", "spike")
    ]
    alone = {key: value for key, value in seconds.items() if key != "ggml"}
    return [*rows, base | {"format": "q2_0", "distribution": "dense", "seconds": alone}]


def test_ratios_to_ggml_are_judged_for_the_kernels_in_use(measured):
    in_use = cbquant.info()["kernels"]
    rows = speed.against_ggml(measured)
    verdicts = {
        (row["format"], row["group"], row["variant"]): (row["figure"], row["judged"] and row["judged"]["target"])
        for row in rows
        if row["format"]
    }
    ours, theirs = f"{in_use}, {WITHOUT}", f"other, {WITHOUT}"
    assert verdicts == {
        ("q4_0", ours, "dense"): (8, 4),
        ("q4_0", ours, "spike"): (8, 3),
        ("iq4_nl", ours, "dense"): (8, 30),
        ("iq4_nl", ours, "spike"): (8, 3),
        **{(fmt, theirs, kind): (2, None) for fmt in ("q4_0", "iq4_nl") for kind in ("dense", "spike")},
    }
    assert rows[0]["group"] == ours
    means = {(row["group"], row["variant"]): row["figure"] for row in rows if row["format"] is None}
    assert pytest.approx(means) == {(ours, "dense"): 8, (ours, "spike"): 8, (theirs, "dense"): 2, (theirs, "spike"): 2}
    summary = report.summarize({"A": rows})
    assert summary["misses"] == [f"A: iq4_nl, {ours}, dense: 8.00, target >= 30"]


def test_speeds_are_those_of_dense_rows(measured):
    rows = speed.speeds(measured)
    assert {(row["format"], row["variant"], row["figure"]) for row in rows if row["format"] == "q2_0"} == {
        ("q2_0", "other", 1.0),
        ("q2_0", cbquant.info()["kernels"], 4.0),
    }
    assert {row["group"] for row in rows} == {f"dense, {WITHOUT}"}


def test_targets_are_of_formats_that_exist():
    names = {f.name for f in BLOCK_FORMATS}
    assert targets.DENSE_ROWS.keys() <= names
    assert {f for f in names if f.startswith("iq")} <= targets.DENSE_ROWS.keys()
    assert min(targets.DENSE_ROWS.values()) >= targets.EACH
    assert (targets.of_one_thread(2), targets.of_one_thread(3)) == (1.9, None)


def test_tables_have_a_column_for_each_variant():
    verdict = report.judge(0.5, ">=", 0.9)
    rows = [
        {"format": "q4_0", "group": "one", "variant": "x", "figure": 1.25, "judged": None},
        {"format": "q4_0", "group": "one", "variant": "y", "figure": 0.5, "judged": verdict},
        {"format": "q8_0", "group": "one", "variant": "x", "figure": 20.0, "judged": None},
        {"format": None, "formats": 2, "group": "one", "variant": "x", "figure": 5.0, "judged": None},
        {"format": "q8_0", "group": "two", "variant": "x", "figure": 3.0, "judged": None},
    ]
    shown = {"S": groups.Section("Title", "Note.", 1)}
    one, two = groups.group_tables({"sections": {"S": rows}}, shown, lambda text, row: f"<{text}>")
    assert (one.title, one.note) == ("S. Title: one", "Note.\nTarget: >= 0.9.")
    assert [column.title for column in one.columns] == ["format", "x", "y", "held"]
    assert one.rows == [["q4_0", "<1.2>", "<0.5>", "NO"], ["q8_0", "<20.0>", "", ""]]
    assert one.total == ["geometric mean", "<5.0>", "", ""]
    assert (two.note, two.rows, two.total) == ("Note.", [["q8_0", "<3.0>"]], None)


# --- first calls -------------------------------------------------------------------------------------------


def test_a_first_call_is_compared_with_the_second(monkeypatch):
    clock = iter([0.0, 5.0, 6.0, 7.0])
    monkeypatch.setattr(first_call.time, "perf_counter", lambda: next(clock))
    assert first_call.difference("iq4_nl") == 4.0


def test_first_calls_are_of_iq_formats_in_milliseconds(monkeypatch):
    seconds = iter([0.01, 0.9, 0.02])
    monkeypatch.setattr(first_call, "_fresh", lambda name: next(seconds))
    formats = tuple(_formats.get(name) for name in ("q4_0", "iq4_nl"))
    (row,) = first_call.first_calls(replace(TINY, formats=formats, processes=3), lambda name: None)
    assert (row["format"], row["figure"], row["judged"]["target"], row["judged"]["held"]) == ("iq4_nl", 20, 50, True)


def test_a_process_that_fails_ends_the_run(monkeypatch):
    done = subprocess.CompletedProcess([], 1, "", "Traceback\nValueError: no")
    monkeypatch.setattr(first_call.subprocess, "run", lambda *args, **options: done)
    with pytest.raises(RuntimeError, match="iq4_nl: a first call failed: ValueError: no"):
        first_call._fresh("iq4_nl")


# --- end to end --------------------------------------------------------------------------------------------


def test_a_run_of_two_formats(capsys, tmp_path):
    page = tmp_path / "docs" / "page.md"
    code, out = run(capsys, tmp_path, "--formats", "q4_0,IQ4_NL", "--docs", str(page))
    assert code == 0
    saved = json.loads((tmp_path / "quantize.json").read_text())
    assert saved["benchmark"] == "quantize"
    assert saved["plan"] == {
        "formats": ["q4_0", "iq4_nl"],
        "threads": [1, 2],
        "rounds": 2,
        "sample_seconds": 0,
        "k": 256,
        "distributions": ["dense", "sparse", "constant", "integers", "spike"],
        "many_rows": 3,
        "processes": 2,
    }
    found = saved["sections"]
    if Ggml.available():
        assert saved["peers"].keys() == {"ggml"}
        rows = [row for row in found["A"] if row["format"]]
        assert len(rows) == 2 * 2 * 5 * len(kernels())
        assert {row["group"] for row in rows} == {f"{k}, {name}" for k in kernels() for name in (WITHOUT, WITH)}
        assert sum(row["judged"] is not None for row in rows) == 2 * 2 * 5
        assert all(row["figure"] > 0 and row["rows"] == 2 for row in rows)
    assert {row["variant"] for row in found["B"]} == {*kernels(), *saved["peers"]}
    assert [(row["format"], row["group"], row["variant"]) for row in found["C"]] == [
        (fmt, "2 threads", name) for fmt in ("q4_0", "iq4_nl") for name in (WITHOUT, WITH)
    ]
    assert [row["format"] for row in found["D"]] == ["iq4_nl"]
    assert all(f"\n{letter}. " in out for letter, rows in found.items() if rows)
    assert "\n## C. More threads, dense: 2 threads\n" in page.read_text()
    assert "Rows of 256 numbers" in page.read_text()


@pytest.mark.parametrize("letter", ["A", "B", "C"])
def test_every_format_with_an_encoder_runs(capsys, tmp_path, letter, monkeypatch):
    monkeypatch.setattr(speed, "ggml_call", lambda *args: None)  # which would build its tables
    run(capsys, tmp_path, "--sections", letter, "--distributions", "sparse,dense")
    assert sections(tmp_path).keys() == {letter}
    names = [row["format"] for row in sections(tmp_path)[letter]]
    assert list(dict.fromkeys(names)) == ([] if letter == "A" else [f.name for f in ENCODED])


def test_formats_without_an_encoder_are_left_out_with_a_note(capsys, tmp_path, monkeypatch):
    right = cbquant.quantize

    def quantize(x, fmt, *args, **options):
        if fmt == "q5_0":
            raise ValueError("fmt: q5_0 has no encoder")
        return right(x, fmt, *args, **options)

    monkeypatch.setattr(cbquant, "quantize", quantize)
    _, out = run(capsys, tmp_path, "--formats", "q4_0,q5_0,q8_0", "--sections", "C")
    assert [row["format"] for row in sections(tmp_path)["C"]] == ["q4_0", "q4_0", "q8_0"]
    assert "no encoder yet: q5_0\n" in out
    assert "an importance matrix changes nothing: q8_0\n" in out


def test_other_errors_of_an_encoder_are_not_taken_for_that(monkeypatch):
    def quantize(*args):
        raise ValueError("x: wrong")

    monkeypatch.setattr(cbquant, "quantize", quantize)
    with pytest.raises(ValueError, match="x: wrong"):
        encoders.has_encoder(BLOCK_FORMATS[0])


@needs_ggml
def test_other_bytes_than_those_of_ggml_end_the_run(capsys, tmp_path, monkeypatch):
    right = speed.own_call

    def own_call(fmt, x, weights, out, *args):
        call = right(fmt, x, weights, out, *args)
        return lambda: (call(), out.__setitem__((-1, -1), out[-1, -1] ^ 1))

    monkeypatch.setattr(speed, "own_call", own_call)
    with pytest.raises(RuntimeError, match="q4_0, dense: scalar and ggml encode the same rows to different bytes"):
        run(capsys, tmp_path, "--formats", "q4_0", "--sections", "A")


def test_an_earlier_run_is_shown_without_measuring(capsys, tmp_path, monkeypatch):
    _, first = run(capsys, tmp_path / "one", "--formats", "q4_0", "--sections", "A,C")
    monkeypatch.setattr(command, "run", lambda *args: pytest.fail("it measured"))
    _, second = run(capsys, tmp_path / "two", "--load", str(tmp_path / "one" / "quantize.json"))
    assert first == second


def test_strict_and_bold_tell_of_misses(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(targets, "TWO_THREADS", 1e9)
    page = tmp_path / "page.md"
    argv = ("--formats", "q8_0", "--sections", "C")
    assert run(capsys, tmp_path, *argv)[0] == 0
    code, out = run(capsys, tmp_path, *argv, "--strict", "--docs", str(page))
    assert code == 1
    assert f"missed  C: q8_0, 2 threads, {WITHOUT}: " in out
    line = next(line for line in page.read_text().splitlines() if line.startswith("| q8_0"))
    assert line.count("**") == 2


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--quick"], {"rounds": 3}),
        (["--distributions", "spike,dense"], {"distributions": ("spike", "dense")}),
        (["--k", "4096", "--threads", "1,4"], {"k": 4096, "threads": (1, 4)}),
    ],
)
def test_options(argv, expected):
    assert command._plan(command._parser().parse_args(argv), TINY) == replace(TINY, **expected)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--formats", "q4_9"], "unknown format 'q4_9'"),
        (["--formats", "q4_0,f16"], "--formats: expected block formats, got f16"),
        (["--k", "100"], "--k: 100 is not a multiple of 32 (q4_0)"),
        (["--k", "0"], "expected a whole number from 1 up, got '0'"),
        (
            ["--distributions", "dense,flat"],
            "--distributions: expected some of dense, sparse, constant, integers, spike",
        ),
        (["--sections", "A,E"], "expected some of A, B, C, D, got 'A,E'"),
        (["--load", "no-such.json"], "no-such.json"),
    ],
)
def test_wrong_usage(capsys, tmp_path, argv, message):
    with pytest.raises(SystemExit) as error:
        command.main([*argv, "--out", str(tmp_path)], TINY)
    assert error.value.code == 2
    assert message in capsys.readouterr().err
