"""gpucheck without a GPU: its sections and their processes, its report, and what it says where things are missing."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cbquant.cli import main
from cbquant.gpucheck import _aims, _build, _command, _items, _probe, _process, _report, _sanitizer, _sections, _worker
from cbquant.gpucheck._items import BEGUN, FAILED, NOT_RUN, OK, Context, Item, Line, NotRun, Wrong
from cbquant.gpucheck._probe import Gpu, NoGpu
from cbquant.gpucheck._sections import SECTIONS, Outcome, Section
from tests.paths import ROOT

H200 = Gpu("NVIDIA H200", (9, 0), 150_000_000_000)
SECTION = Section("correctness", "for a test", 5)


def has_gpu() -> bool:
    try:
        _probe.find_gpu()
    except NoGpu:
        return False
    return True


without_gpu = pytest.mark.skipif(has_gpu(), reason="there is a GPU")


# ---- without a GPU ----


@without_gpu
@pytest.mark.parametrize("module", ["cbquant.gpucheck", "cbquant"])
def test_without_a_gpu_it_says_so_and_ends_with_2(module: str) -> None:
    command = [sys.executable, "-m", module, *(["gpucheck"] if module == "cbquant" else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    why = r"there is no NVIDIA (driver: libcuda\.so\.1 was not found|GPU, .*)"
    assert re.fullmatch(f"cbquant: error: {why}; gpucheck needs an NVIDIA GPU", done.stderr.strip())


def test_unknown_section_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpucheck", "--sections", "speed"]) == 2
    names = ", ".join(section.name for section in SECTIONS)
    assert f"--sections: expected {names}, got 'speed'" in capsys.readouterr().err


@without_gpu
@pytest.mark.parametrize("name", [name for name in _worker.MODULES if name != "build"])
def test_processes_of_sections_say_what_they_lack(tmp_path: Path, name: str) -> None:
    results = tmp_path / "results.jsonl"
    assert _sections.starter(tmp_path)(name, results, time.time() + 60) == 0
    lines = _items.read(results)
    assert {line["state"] for line in lines} == {NOT_RUN}
    assert all("CUDA" in line["text"] or "NVIDIA" in line["text"] for line in lines)


@without_gpu
def test_without_a_module_nothing_else_is_started(tmp_path: Path) -> None:
    told: list[str] = []
    outcomes = _sections.run_all(tmp_path, 60, [], lambda outcome: told.append(outcome.section.name))
    assert told == ["build"]
    assert outcomes[0].state == FAILED
    assert "NVIDIA" in outcomes[0].lines[0]["text"]
    assert _report.failures(outcomes)


def test_every_section_has_a_module() -> None:
    assert [section.name for section in SECTIONS] == list(_worker.MODULES)
    assert sum(section.seconds for section in SECTIONS[:-1]) < 470


# ---- items ----


def works(**data: Any) -> dict[str, Any]:
    return data


def raises(error: Exception) -> Any:
    def work() -> dict[str, Any]:
        raise error

    return work


def test_items_end_well_or_wrong_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_items, "is_broken", lambda context: False)
    items = [
        Item("well", lambda: works(rows=[])),
        Item("wrong", raises(Wrong("3, expected 4"))),
        Item("broken", raises(ZeroDivisionError("oh"))),
        Item("lacking", raises(NotRun("no torch"))),
        Item("done before", raises(AssertionError())),
    ]
    lines: list[Line] = []
    assert _items.run(items, Context(time.time() + 60), lines.append, {"done before"})
    assert [(line["item"], line["state"]) for line in lines if line["state"] != BEGUN] == [
        ("well", OK),
        ("wrong", FAILED),
        ("broken", FAILED),
        ("lacking", NOT_RUN),
    ]
    assert [line["text"] for line in lines if line["state"] != BEGUN] == [
        "",
        "3, expected 4",
        "ZeroDivisionError: oh",
        "no torch",
    ]


def test_no_item_begins_after_the_time() -> None:
    lines: list[Line] = []
    _items.run([Item("late", raises(AssertionError()))], Context(time.time() - 1), lines.append)
    assert lines == [{"item": "late", "state": NOT_RUN, "text": "no time was left"}]


def test_an_item_that_breaks_the_device_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_items, "is_broken", lambda context: True)
    items = [Item("breaks", raises(RuntimeError("illegal address"))), Item("next", raises(AssertionError()))]
    lines: list[Line] = []
    assert not _items.run(items, Context(time.time() + 60), lines.append)
    assert [line["item"] for line in lines] == ["breaks", "breaks"]


# ---- processes ----


class Fake:
    """Stands for the processes of a section: each start writes some lines and ends with a code."""

    def __init__(self, *starts: tuple[list[Line], int | None]) -> None:
        self.starts = list(starts)

    def __call__(self, name: str, results: Path, until: float) -> int | None:
        lines, code = self.starts.pop(0)
        for line in lines:
            _items.writer(results)(line)
        return code


def line(item: str, state: str, text: str = "") -> Line:
    return {"item": item, "state": state, "text": text}


def outcome_of(tmp_path: Path, *starts: tuple[list[Line], int | None]) -> tuple[Outcome, Fake]:
    fake = Fake(*starts)
    return _sections.run_section(SECTION, tmp_path / "results.jsonl", time.time() + 5, fake), fake


def test_a_crash_is_a_failure_of_its_item_and_the_others_go_on(tmp_path: Path) -> None:
    starts = ([line("a", OK), line("b", BEGUN)], -11), ([line("c", OK)], 0)
    outcome, fake = outcome_of(tmp_path, *starts)
    assert [(at["item"], at["state"]) for at in outcome.lines] == [("a", OK), ("b", FAILED), ("c", OK)]
    assert outcome.lines[1]["text"] == "its process ended with code -11"
    assert fake.starts == []


def test_a_broken_device_is_left_to_another_process(tmp_path: Path) -> None:
    starts = ([line("a", BEGUN), line("a", FAILED, "illegal address")], _worker.BROKEN), ([line("b", OK)], 0)
    outcome, fake = outcome_of(tmp_path, *starts)
    assert [at["text"] for at in outcome.lines] == ["illegal address", ""]
    assert fake.starts == []


def test_a_hang_ends_the_section(tmp_path: Path) -> None:
    outcome, _ = outcome_of(tmp_path, ([line("a", OK), line("b", BEGUN)], None))
    assert outcome.lines[1]["text"] == "it did not end in time"
    assert outcome.state == FAILED


def test_a_section_that_cannot_begin_is_not_started_for_ever(tmp_path: Path) -> None:
    outcome, _ = outcome_of(tmp_path, ([], 1))
    assert outcome.lines == [line("correctness", FAILED, "the process of the section ended with code 1")]


def test_processes_are_ended_with_what_they_started(tmp_path: Path) -> None:
    inner = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    with (tmp_path / "log").open("w+") as log:
        assert _process.run([sys.executable, "-c", code], 2, log) is None
        log.seek(0)
        child = int(log.read())
    for _ in range(50):
        if not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split(")")[1][:3]:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the child goes on")


# ---- building ----


def test_a_module_that_works_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_build, "find_gpu", lambda: H200)
    monkeypatch.setattr(_build, "why_unavailable", lambda: "")
    assert _build.ready(Context(0)) == {"gpu": "NVIDIA H200", "capability": "9.0", "built": False}


def test_the_module_is_built_for_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = ["cbquant was built without CUDA", ""]
    built: list[str] = []
    monkeypatch.setattr(_build, "find_gpu", lambda: H200)
    monkeypatch.setattr(_build, "why_unavailable", lambda: reasons.pop(0))
    monkeypatch.setattr(_build, "build_for", lambda root, arch: built.append(arch))
    assert _build.ready(Context(0))["built"]
    assert built == ["90a"]
    reasons[:] = ["not built", "the driver is too old"]
    with pytest.raises(Wrong, match="built for 90a, but: the driver is too old"):
        _build.ready(Context(0))


def test_what_is_missing_for_a_build_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_build, "find_gpu", lambda: H200)
    monkeypatch.setattr(_build, "why_unavailable", lambda: "cbquant was built without CUDA")
    monkeypatch.setattr(_build, "checkout", lambda: None)
    with pytest.raises(Wrong, match="in a checkout of the sources, CBQUANT_CUDA=1 CBQUANT_CUDA_ARCHS=90a pip install"):
        _build.ready(Context(0))
    cuda = _build.load_build(ROOT)
    if len(cuda.candidates({"PATH": ""})) == 0:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CUDA_HOME", raising=False)
        with pytest.raises(Wrong, match="cannot be built: no nvcc was found on PATH"):
            _build.build_for(ROOT, "90a")


@without_gpu
def test_a_fresh_process_says_why_there_is_no_gpu() -> None:
    assert len(_build.why_unavailable().split()) > 4


# ---- compute-sanitizer ----


@pytest.mark.parametrize(
    ("code", "output", "lines", "error", "text"),
    [
        (77, "========= Invalid __global__ read of size 16 bytes\n", [], Wrong, "memcheck: Invalid __global__ read"),
        (0, "", [line("matmul q4_0", FAILED, "nan")], Wrong, "memcheck: matmul q4_0: nan"),
        (1, "no GPU debugging here", [], NotRun, r"does not start here \(code 1\): no GPU debugging here"),
        (0, "", [line("correctness", NOT_RUN, "no driver")], NotRun, r"does not start here \(code 0\)"),
    ],
)
def test_what_the_sanitizer_says(code: int, output: str, lines: list[Line], error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        _sanitizer.judge("memcheck", code, output, lines)


def test_a_run_without_findings_is_well() -> None:
    assert _sanitizer.judge("memcheck", 0, "", [line("a", OK), line("b", OK)]) == {"items": 2}


@without_gpu
def test_the_sanitizer_runs_the_small_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text('#!/bin/sh\necho "$@" > "$0.arguments"\nshift 4\nexec "$@"\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(NotRun, match=r"memcheck does not start here \(code 0\)"):
        _sanitizer.check(Context(time.time() + 60), "memcheck")
    words = (tmp_path / "compute-sanitizer.arguments").read_text().split()
    assert words[:4] == ["--tool", "memcheck", "--error-exitcode", "77"]
    assert words[5:8] == ["-m", "cbquant.gpucheck._worker", "correctness"]


def test_no_sanitizer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    if not Path("/usr/local/cuda/bin/compute-sanitizer").exists():
        with pytest.raises(NotRun, match="neither on PATH nor below CUDA_HOME"):
            _sanitizer.find()


# ---- the report ----


def product(m: int, microseconds: float, times_bf16: float, fmt: str = "q4_0", **more: Any) -> dict[str, Any]:
    row = {"what": "matmul", "format": fmt, "m": m, "n": 16384, "k": 16384, "weight_bytes": 151_000_000, "budget": 4.03}
    row |= {"seconds": microseconds / 1e6, "spread": 0.01, "samples": 60, "captured": True, "kernel": "matmul"}
    return {**row, "of_copy": 0.75, "times_bf16": times_bf16, "flop_per_second": 1e12, **more}


def outcomes() -> list[Outcome]:
    decoded = {"what": "dequant", "format": "q4_0", "bytes": 690_000_000, "seconds": 2e-4, "of_copy": 0.9}
    moe = {"what": "moe", "format": "q4_0", "m": 4096, "n": 4096, "k": 4096, "experts": 64, "picks": 8}
    moe |= {"seconds": 5e-3, "times_bf16": 0.7, "flop_per_second": 220e12}
    rows = [product(1, 50, 3.0), product(8, 55, 2.9), product(16, 60, 2.0), decoded, moe]
    rows.append(product(1, 200, float("nan"), "humming int4") | {"what": "peer"})
    correct = [line("matmul q4_0", OK) | {"data": {"kernel": "k", "L2 f32, float32": 3e-7}}]
    correct += [line("moe q4_0", FAILED, "nan at (0, 0)"), line("moe q8_0", NOT_RUN, "no time was left")]
    correct += [line("moe q4_k", NOT_RUN, "no time was left")]
    return [
        Outcome(SECTIONS[3], correct, 12.0),
        Outcome(SECTIONS[-1], [line("products q4_0", OK) | {"data": {"rows": rows}}, line("peer", FAILED, "x")], 60.0),
    ]


def test_report_is_written(tmp_path: Path) -> None:
    report = _report.make(H200, outcomes(), 72.0)
    names = [path.name for path in _report.write(report, tmp_path)]
    assert names == ["gpucheck.json", "gpucheck.txt", "gpucheck.png"]
    kept = json.loads((tmp_path / "gpucheck.json").read_text())
    assert (kept["correct"], kept["gpu"]["capability"], kept["rows"][-1]["times_bf16"]) == (False, "9.0", None)
    assert (tmp_path / "gpucheck.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "gpucheck.txt").read_text()
    for words in (
        "on NVIDIA H200 (9.0, 150 GB), 72 s",
        "- correctness, moe q4_0: nan at (0, 0)",
        "- correctness, moe q8_0, moe q4_k: no time was left",
        "worst relative L2: f32, float32 3.0e-07",
        "MoE prefill, 4096 tokens, 8 of 64 experts of 4096 x 4096",
    ):
        assert words in text
    assert re.search(r"M = 1, times as fast as bf16 +q4_0 +3\.00 +>= 2\.8 +held", text)
    assert re.search(r"M = 8, time against M = 1 +q4_0 +1\.10 +<= 1\.15 +held", text)
    assert re.search(r"M = 16, times as fast as bf16 +q4_0 +2\.00 +>= 3 +MISSED", text)
    assert re.search(r"M = 32, times as fast as bf16 +not measured +>= 2\.3", text)
    assert re.search(r"MoE prefill, TFLOP/s +q4_0 +220\.00 +>= 450 +MISSED", text)


def test_report_of_nothing_can_be_shown(tmp_path: Path) -> None:
    report = _report.make(H200, [Outcome(SECTIONS[0], [line("cbquant._cuda", FAILED, "no nvcc")], 1.0)], 1.0)
    assert [path.suffix for path in _report.write(report, tmp_path)] == [".json", ".txt"]
    assert not report["correct"]
    assert {verdict["held"] for verdict in report["aims"]} == {None}


def test_report_needs_no_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert len(_report.write(_report.make(H200, outcomes(), 72.0), tmp_path)) == 2
    assert "no picture" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "correct"),
    [
        ([line("matmul q4_0", OK)], True),
        ([line("matmul q4_0", OK), line("moe q4_0", NOT_RUN)], True),
        ([line("matmul q4_0", FAILED, "nan")], False),
        ([line("correctness", NOT_RUN, "no driver")], False),
    ],
)
def test_correct_is_what_was_checked(lines: list[Line], correct: bool) -> None:
    assert _report.make(H200, [Outcome(SECTION, lines)], 1.0)["correct"] is correct


def test_slow_is_not_wrong() -> None:
    assert _report.failures([Outcome(SECTIONS[-1], [line("products q4_0", FAILED, "out of memory")])]) == []


def test_small_weights_are_no_aim() -> None:
    verdicts = _aims.judge([product(1, 50, 3.0, weight_bytes=33_000_000), product(1, 50, 3.0, "q8_0")])
    assert {verdict["held"] for verdict in verdicts} == {None}


@pytest.mark.parametrize(("found", "code"), [(OK, 0), (FAILED, 1)])
def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: str, code: int
) -> None:
    """All of it, with sections that come to their end at once. What another run left does not count."""
    (tmp_path / "correctness.jsonl").write_text(json.dumps(line("moe q4_0", FAILED, "of another day")) + "\n")

    def start(name: str, results: Path, until: float) -> int:
        assert until <= time.time() + 470
        _items.writer(results)(line(f"all of {name}", found if name == "correctness" else OK))
        return 0

    monkeypatch.setattr(_probe, "find_gpu", lambda: H200)
    monkeypatch.setattr(_sections, "starter", lambda folder: start)
    assert main(["gpucheck", "--out", str(tmp_path), "--seconds", "100", "--json"]) == code
    output = capsys.readouterr()
    assert [s["section"] for s in json.loads(output.out)["sections"]] == [section.name for section in SECTIONS]
    assert "of another day" not in output.out
    assert f"cbquant: correctness: 1 items, {code} failed, 0 not run, 0 s" in output.err
    assert (tmp_path / "gpucheck.json").exists()
    assert main(["gpucheck", "--sections", "correctness"]) == code
    assert "correctness" in capsys.readouterr().out


def test_a_run_without_a_folder_leaves_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_command, "prepare", lambda folder: (tmp_path / "where").write_text(str(folder)))
    monkeypatch.setattr(_sections, "run_all", lambda *arguments: [])
    _command.check(H200, None, 10, [])
    assert not Path((tmp_path / "where").read_text()).exists()
