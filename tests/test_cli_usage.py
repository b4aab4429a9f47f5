"""The command line: bad usage, terminals with rich and without it."""

from __future__ import annotations

import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import cbquant
from cbquant.cli import main, output, progress
from tests.cli_files import run_error, run_json


@pytest.fixture(params=["rich", "plain"])
def terminal(request, monkeypatch, capsys):
    """stdout and stderr as terminals, with rich and without it."""
    # capsys changes the streams between a fixture and its test: the class stays.
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda stream: True)
    monkeypatch.setenv("COLUMNS", "120")
    if request.param == "plain":
        block_rich(monkeypatch)
    return request.param


def block_rich(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)


# --- usage and bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        ([], "required: COMMAND"),
        (["decode"], "invalid choice: 'decode'"),
        (["inspect"], "required: FILE"),
        (["inspect", "{folder}/none.gguf"], "none.gguf: No such file or directory"),
        (["inspect", "{folder}"], "Is a directory"),
        (["inspect", "{model}", "more"], "unrecognized arguments: more"),
        (["inspect", "{model}", "--tens", "x"], "unrecognized arguments: --tens x"),
        (["validate", "{text}"], "begins with b'GGUF', or one of safetensors or its index, got b'text'"),
        (["validate", "{cut}"], "end past the file"),
        (["validate", "{model}", "--threads", "0"], "expected a whole number from 1 up, got '0'"),
        (["validate", "{model}", "--threads", "9999"], "argument --threads: expected 1 to 512, got 9999"),
        (["validate", "{model}", "--threads", "9" * 20], "a number of up to 18 digits, got 99999999999999999999"),
        (["validate", "{model}", "--threads", "9" * 5000], "a number of up to 18 digits, got one of 5,000 digits"),
        (["inspect", ""], "path: expected a path, got an empty string"),
        (["quantize", "{model}", "", "--type", "q4_0"], "argument DST: expected a path, got an empty one"),
        (["dequant", "{model}", "-o", ""], "argument -o/--output: expected a path, got an empty one"),
        (["bench", "--mib", "99999999999"], "argument --mib: 99,999,999,999 MiB are more than there is memory for"),
        (["bench", "--mib", "9" * 18], "MiB are more than there is memory for"),
        (["dequant", "{model}"], "required: -o"),
        (["dequant", "-o", "{folder}/x"], "expected FILE, or --raw"),
        (["dequant", "{model}", "-o", "{folder}/x", "--dtype", "int8"], "invalid choice: 'int8'"),
        (["dequant", "{model}", "blk.0.attn_k", "-o", "{folder}/x"], "did you mean 'blk.0.attn_q.weight'"),
        (["dequant", "{model}", "-o", "{folder}/x", "k", "--bogus"], "unrecognized arguments: k --bogus"),
        (["dequant", "{model}", "-o", "{folder}/x", "--format", "q4_0"], "belong to --raw"),
        (["dequant", "{model}", "-o", "{folder}/x", "--raw", "y"], "takes the place of FILE"),
        (["dequant", "-o", "{folder}/x", "--raw", "y"], "--raw needs --format"),
        (["dequant", "-o", "x", "--raw", "y", "--format", "q4_0", "--shape", "2,a"], "with commas between"),
        (["bench", "--mib", "-1"], "expected a whole number from 1 up"),
        (["bench", "--formats", "q4_0,q4_9"], "argument --formats: unknown format 'q4_9'; did you mean q4_"),
        (["dequant", "-o", "x", "--raw", "y", "--format", "q9"], "argument --format: unknown format 'q9'"),
    ],
)
def test_bad_usage_is_one_line(model, tmp_path, capsys, argv, text):
    files = {"model": model, "folder": tmp_path, "text": tmp_path / "text", "cut": tmp_path / "cut.gguf"}
    files["text"].write_bytes(b"text")
    files["cut"].write_bytes(model.read_bytes()[:-40])
    assert text in run_error(capsys, *(word.format(**files) for word in argv))
    assert not (tmp_path / "x").exists()


def test_errors_stay_in_one_line_whatever_the_name(tmp_path, capsys):
    assert r"none\n\x1b" in run_error(capsys, "inspect", tmp_path / "none\n\x1b[31m")


def test_memory_that_is_not_there_is_an_error(capsys, monkeypatch):
    monkeypatch.setattr(cbquant, "formats", lambda: (_ for _ in ()).throw(MemoryError("no 8 TiB")))
    assert run_error(capsys, "formats") == "out of memory: no 8 TiB"


def test_a_defect_is_not_a_finding(capsys, monkeypatch):
    monkeypatch.setattr(cbquant, "formats", lambda: {}["defect"])
    assert main(["formats"]) == os.EX_SOFTWARE != 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Traceback")
    assert captured.err.endswith("KeyError: 'defect'\n")


def test_the_second_name_of_a_failed_renaming_is_told(capsys, monkeypatch):
    error = FileExistsError(17, "File exists", "a.part", None, "a.npy")
    monkeypatch.setattr(cbquant, "formats", lambda: (_ for _ in ()).throw(error))
    assert run_error(capsys, "formats") == "a.npy: File exists"


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN, lambda number, frame: None])
def test_the_handler_of_sigterm_is_restored(capsys, monkeypatch, before):
    handlers = []
    monkeypatch.setattr(cbquant, "formats", lambda: handlers.append(signal.getsignal(signal.SIGTERM)) or [])
    kept = signal.signal(signal.SIGTERM, before)
    try:
        assert main(["formats"]) == 0
        assert signal.getsignal(signal.SIGTERM) == before
    finally:
        signal.signal(signal.SIGTERM, kept)
    assert (handlers == [before]) == (before != signal.SIG_DFL)


def test_commands_run_in_other_threads_too(capsys):
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(main, ["info"]).result() == 0


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["dequant", "--help"], ["bench", "--help"]])
def test_help_and_version(argv, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert cbquant.__version__ in out or "exit codes" in out
    if argv == ["dequant", "--help"]:
        assert "uint16 bit patterns" in " ".join(out.split())


# --- terminals ---------------------------------------------------------------------------------------------


def test_a_terminal_gets_a_table_and_progress(model, tmp_path, capsys, monkeypatch, terminal):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    assert main(["inspect", str(model)]) == 0
    out = capsys.readouterr().out
    assert ("─" in out) == (terminal == "rich")
    assert "token_embd.weight" in out
    assert main(["dequant", str(model), "-o", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    assert "decoding" in captured.err
    assert "decoding" not in captured.out
    assert "100 %" in captured.err or terminal == "rich"


def test_a_table_has_no_control_characters(hostile, capsys, terminal):
    assert main(["inspect", str(hostile)]) == 0
    out = capsys.readouterr().out
    assert "\x1b[31m" not in out
    assert r"\x1b[31m" in out
    assert "[red]x[/red]" in out
    assert r"two\nlines" in out
    assert r"\udcff" in out


def test_json_alone_is_on_stdout_of_a_terminal(model, capsys, terminal):
    assert run_json(capsys, "validate", model)["findings"] == []


def test_without_a_terminal_there_is_no_progress(model, tmp_path, capsys):
    assert main(["dequant", str(model), "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().err == ""


def test_plain_output_needs_no_rich(model, capsys, monkeypatch):
    main(["inspect", str(model)])
    piped = capsys.readouterr().out
    block_rich(monkeypatch)
    main(["inspect", str(model)])
    assert capsys.readouterr().out == piped


def test_json_of_odd_values(capsys):
    output.print_json({"a": np.float32(np.inf), "b": np.arange(2), "c": Path("x"), "d": (np.True_, None), "e": 2**64})
    assert json.loads(capsys.readouterr().out) == {
        "a": None,
        "b": [0, 1],
        "c": "x",
        "d": [True, None],
        "e": 2**64,
    }
