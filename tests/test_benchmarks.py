"""The benchmarks: their arithmetic, their ceilings, and a run end to end on tiny sizes. Nothing about speed."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil

import numpy as np
import pytest

import benchmarks
import cbquant
from benchmarks import blocks, ceilings, report, timing
from benchmarks.dequant import cache, command, peers, plot, targets
from benchmarks.dequant.plan import Plan
from benchmarks.timing import Timing

TINY = Plan(
    formats=tuple(cbquant.formats()),
    rounds=2,
    sample_seconds=0,
    memory_bytes=64 << 10,
    cache_bytes=16 << 10,
    matrix_bytes=32 << 10,
)


@pytest.fixture
def verdict():
    return report.judge(0.8, ">=", 0.9)


# --- arithmetic --------------------------------------------------------------------------------------------


def test_measure_takes_turns_and_warms_up_each_sample():
    calls: list[str] = []
    ring = [lambda: calls.append("a1"), lambda: calls.append("a2")]
    timings = timing.measure({"a": ring, "b": [lambda: calls.append("b")]}, rounds=2)
    a, b = ["a1", "a2"] * 2, ["b"] * 2
    assert calls == a + b + b + a
    assert timings.keys() == {"a", "b"}
    assert all(t.seconds > 0 and t.spread >= 0 for t in timings.values())


def test_measure_is_the_median_time_of_one_call(monkeypatch):
    # Three samples of a ring of two calls, which last 2, 8 and 4 seconds.
    clock = iter([0.0, 2.0, 10.0, 18.0, 20.0, 24.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    assert timing.measure({"x": [int, int]}, rounds=3) == {"x": Timing(2.0, 0.75)}


def test_measure_repeats_short_calls(monkeypatch):
    # A call lasts one second of this clock, which stands still in between.
    now = [0.0]

    def call():
        now[0] += 1.0

    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    assert timing.measure({"x": [call]}, rounds=2, sample_seconds=10)["x"].seconds == 1.0
    # To learn how long a call takes, twice a warm lap and a timed one; then two samples of a warm lap and ten.
    assert now[0] == 2 * 2 + 2 * (1 + 10)


def test_ratios_and_scaling():
    assert timing.ratio(Timing(6.0, 0.1), Timing(1.5, 0.1)) == 4.0
    assert timing.fastest({"a": Timing(2.0, 0.0), "b": Timing(1.0, 0.0), "c": Timing(3.0, 0.0)}) == "b"
    assert ceilings.scale(4, 0) == 1.0
    assert ceilings.scale(4, 4) == 0.5
    assert ceilings.scale(2, 0.5) == 0.8


def test_peer_means_are_geometric_and_by_variant():
    rows = [
        {"format": name, "kind": kind, "variant": variant, "peer": "ggml", "figure": figure, "output_bytes": size}
        for name, kind, variant, figure, size in [
            ("q4_0", "linear", "ggml, 1 KiB", 2.0, 1024),
            ("q8_0", "signed", "ggml, 1 KiB", 50.0, 1024),
            ("f16", "plain", "ggml, 1 KiB", 0.1, 1024),
            ("q4_0", "linear", "ggml, 2 KiB", 3.0, 2048),
        ]
    ]
    small, large = peers._means(rows)
    assert (small["figure"], small["formats"], small["judged"]["held"]) == (pytest.approx(10.0), 2, True)
    assert (large["figure"], large["formats"], large["judged"]) == (pytest.approx(3.0), 1, None)


@pytest.mark.parametrize(
    ("value", "sense", "target", "held"),
    [
        (0.9, ">=", 0.9, True),
        (0.899, ">=", 0.9, False),
        (1.1, "<=", 1.1, True),
        (1.11, "<=", 1.1, False),
        (float("nan"), ">=", 0.9, False),
        (float("nan"), "<=", 1.1, False),
    ],
)
def test_judge(value, sense, target, held):
    assert report.judge(value, sense, target)["held"] is held


def test_targets_are_of_things_that_exist_and_nothing_promised_is_not_judged():
    assert report.judge(0.1, ">=", None) is None
    assert targets.IN_CACHE.keys() <= {f.name for f in cbquant.formats()}
    assert targets.PEER_MEANS.keys() | targets.PEER_EACH.keys() <= peers.PEERS.keys()


def test_summary_counts_and_names_misses(verdict):
    good = report.judge(0.95, ">=", 0.9)
    sections = {
        "A": [
            {"format": "q4_0", "variant": "1 thread", "judged": None},
            {"format": "q4_0", "variant": "2 threads", "judged": verdict},
            {"format": "q8_0", "variant": "2 threads", "judged": good},
        ],
        "C": [{"format": None, "formats": 7, "variant": "ggml, 8 MiB", "judged": verdict}],
    }
    assert report.summarize(sections) == {
        "held": 1,
        "judged": 3,
        "misses": [
            "A: q4_0, 2 threads: 0.80, target >= 0.9",
            "C: geometric mean of 7 formats, ggml, 8 MiB: 0.80, target >= 0.9",
        ],
    }


@pytest.mark.parametrize(
    "name",
    [m.name for m in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.") if "__main__" not in m.name],
)
def test_examples_in_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


# --- ceilings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("offset", [0, 4, 60])
@pytest.mark.parametrize("size", [4, 64, 4100])
def test_every_ceiling_writes_all_of_the_memory_and_nothing_else(threads, offset, size):
    memory = np.zeros(size + 192, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    out = memory[begin : begin + size]
    fills = ceilings.memory_fills(out, ceilings.Crew(threads))
    assert fills.keys() == {"fill", "memset"} | ({"stream"} if ceilings.load_stream_fill()[0] else set())
    for calls in [*fills.values(), *ceilings.cache_fills(out).values()]:
        memory[:] = 0
        for call in calls:
            call()
        assert out.all() or (out.view(np.float32) == 0.75).all()
        assert np.count_nonzero(memory) == np.count_nonzero(out)


def test_a_fresh_fill_is_a_new_array_each_time():
    call = ceilings.fresh_fill(100, ceilings.Crew(2))
    first, second = call(), call()
    assert first.shape == (100,)
    assert (first == 0.75).all()
    assert (second == 0.75).all()
    assert not np.may_share_memory(first, second)


def test_without_a_compiler_the_report_says_so(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    function, note = ceilings.load_stream_fill.__wrapped__()
    assert function is None
    assert "not measured: no C compiler" in note


def test_a_compiler_that_fails_is_reported(monkeypatch, tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'cannot do that' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert ceilings.load_stream_fill.__wrapped__() == (
        None,
        "streaming stores were not measured: cannot do that",
    )


def test_an_error_on_another_thread_is_raised():
    def fail():
        raise ValueError("from the other thread")

    crew = ceilings.Crew(2)
    with pytest.raises(ValueError, match="from the other thread"):
        crew.run([int, fail])
    assert crew.run([int, int]) is None  # it goes on working


# --- blocks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", cbquant.formats(), ids=lambda f: f.name)
def test_blocks_decode_to_ordinary_numbers(fmt):
    raw = blocks.random_blocks(fmt, 16384)
    assert (raw.dtype, raw.shape) == (np.uint8, (16384 // fmt.elements * fmt.bytes,))
    values = np.abs(cbquant.dequant(raw, fmt.name))
    assert np.isfinite(values).all()
    assert not ((values > 0) & (values < np.finfo(np.float32).tiny)).any()
    assert np.unique(values).size > 8
    assert (raw == blocks.random_blocks(fmt, 16384)).all()
    assert (raw != blocks.random_blocks(fmt, 16384, seed=1)).any()


@pytest.mark.parametrize("fmt", cbquant.formats(), ids=lambda f: f.name)
def test_rings_are_different_blocks_that_fit_a_cache(fmt):
    ring = cache.ring_of_blocks(fmt, 65536)
    assert len(ring) == 1 or sum(raw.nbytes for raw in ring) <= 512 << 10
    assert len({raw.tobytes() for raw in ring}) == len(ring)


# --- peers -------------------------------------------------------------------------------------------------


def test_peers_decode_what_they_should():
    out = np.empty(4096, np.float32)
    calls = {
        (peer, fmt.name): prepare(fmt, blocks.random_blocks(fmt, out.size), out)
        for peer, prepare in peers.present().items()
        for fmt in cbquant.formats()
    }
    found = {peer: {name for (p, name), call in calls.items() if p == peer and call} for peer, _ in calls}
    plain = {f.name for f in cbquant.formats() if f.kind == "plain"}
    assert found["NumPy"] == plain
    assert found["gguf-py"] >= {"q4_0", "q6_k", "iq1_m", "mxfp4", "bf16", "f16"}
    assert "f32" not in found["gguf-py"]  # a view, no work
    if "ggml" in found:
        assert found["ggml"] >= {"q4_0", "q6_k", "iq1_m", "mxfp4", "tq2_0"}


def test_a_peer_with_other_values_is_not_timed():
    fmt = next(f for f in cbquant.formats() if f.name == "q8_0")
    raw, out = blocks.random_blocks(fmt, 256), np.empty(256, np.float32)
    right = cbquant.dequant(raw, "q8_0")
    peers._check("right", fmt, raw, lambda: right, out)
    for wrong in (lambda: right * 1.01, lambda: None):
        with pytest.raises(RuntimeError, match=r"q8_0: wrong and cbquant decode .* different values"):
            peers._check("wrong", fmt, raw, wrong, out)


# --- end to end --------------------------------------------------------------------------------------------


def run(capsys, tmp_path, *argv, plan=TINY):
    code = command.main([*argv, "--out", str(tmp_path)], plan)
    return code, capsys.readouterr().out


def test_a_quick_run_of_one_format(capsys, tmp_path):
    page = tmp_path / "docs" / "performance.md"
    code, out = run(capsys, tmp_path, "--quick", "--formats", "Q4_0", "--docs", str(page))
    assert code == 0
    saved = json.loads((tmp_path / "dequant.json").read_text())
    for section, variants in {
        "A": {"1 thread", "2 threads"},
        "B": set(cache.kernels()),
        "C": {f"{peer}, {size} KiB" for peer in peers.present() if peer != "NumPy" for size in (16, 32)},
        "D": {"1 thread", "2 threads"},
        "E": {"float16", "bfloat16"},
    }.items():
        rows = [row for row in saved["sections"][section] if row["format"]]
        assert {row["variant"] for row in rows} == variants
        assert all(row["format"] == "q4_0" and row["figure"] > 0 and row["seconds"] > 0 for row in rows)
        assert f"\n{section}. " in out
    assert saved["plan"] == {"formats": ["q4_0"], "threads": [1, 2], "rounds": 3, "sample_seconds": 0}
    assert saved["machine"]["isa"] == cbquant.info()["isa"]
    assert saved["peers"] == peers.versions()
    assert saved["call_seconds"].keys() >= {"cbquant._core.dequant", "cbquant.dequant"}
    assert saved["targets"] == report.summarize(saved["sections"])
    assert f"{saved['targets']['held']} of {saved['targets']['judged']} targets held" in out
    assert (tmp_path / "dequant.png").read_bytes().startswith(b"\x89PNG")
    assert "| q4_0 | " in page.read_text()


def test_what_is_judged_in_each_section(capsys, tmp_path):
    run(capsys, tmp_path, "--formats", "iq3_s,q8_0", "--threads", "1,2")
    sections = json.loads((tmp_path / "dequant.json").read_text())["sections"]
    promised = {
        letter: {(row["format"], row["variant"]): row["judged"]["target"] for row in rows if row["judged"]}
        for letter, rows in sections.items()
    }
    kernels = cbquant.info()["kernels"]
    assert promised["A"] == {("iq3_s", "2 threads"): 0.9, ("q8_0", "2 threads"): 0.9}
    assert promised["B"] == {("iq3_s", kernels): 0.25, ("q8_0", kernels): 0.45}
    assert set(promised["D"].values()) == {1.1}
    assert len(promised["D"]) == 4
    assert promised["E"] == {}
    means = {variant: target for (name, variant), target in promised["C"].items() if name is None}
    judged = peers.present().keys() & targets.PEER_MEANS.keys()
    assert means == {f"{peer}, 16 KiB": targets.PEER_MEANS[peer] for peer in judged}


@pytest.mark.parametrize(("last_cache", "from_memory"), [(1000, True), (0, False)])
def test_the_scaled_ceiling_counts_where_blocks_exceed_the_last_cache(
    capsys, tmp_path, monkeypatch, last_cache, from_memory
):
    monkeypatch.setattr("cbquant._core.last_cache_bytes", lambda: last_cache)
    run(capsys, tmp_path, "--formats", "q8_0", "--sections", "A")
    for row in json.loads((tmp_path / "dequant.json").read_text())["sections"]["A"]:
        assert row["blocks_from_memory"] is from_memory
        fastest = min(row["ceiling_seconds"].values())
        assert row["ceiling_seconds"][row["ceiling"]] == fastest
        assert row["of_ceiling"] == pytest.approx(fastest / row["seconds"])
        assert row["of_scaled_ceiling"] == pytest.approx(row["of_ceiling"] * (4 + 34 / 32) / 4)
        assert row["figure"] == row["of_scaled_ceiling" if from_memory else "of_ceiling"]


def test_every_format_runs(capsys, tmp_path):
    code, out = run(capsys, tmp_path, "--threads", "1")
    assert code == 0
    saved = json.loads((tmp_path / "dequant.json").read_text())
    names = [f.name for f in cbquant.formats()]
    for letter in "ABDE":
        assert list(report.by_format(saved["sections"][letter])) == names
    assert all(name in out for name in names)
    assert not any(row["judged"] for letter in "AE" for row in saved["sections"][letter])  # one thread


def test_an_earlier_run_is_shown_without_measuring(capsys, tmp_path, monkeypatch, verdict):
    argv = ("--formats", "q4_0,f16", "--sections", "A,C")
    _, first = run(capsys, tmp_path / "one", *argv)
    monkeypatch.setattr(command, "run", lambda *args: pytest.fail("it measured"))
    saved = tmp_path / "one" / "dequant.json"
    _, second = run(capsys, tmp_path / "two", "--load", str(saved))
    assert first == second
    assert (tmp_path / "two" / "dequant.json").read_text() == saved.read_text()


@pytest.mark.parametrize(("misses", "code"), [([], 0), (["A: q4_0: 0.80, target >= 0.9"], 1)])
def test_strict_tells_of_misses_by_the_exit_code(capsys, tmp_path, misses, code):
    run(capsys, tmp_path, "--formats", "q4_0", "--sections", "A")
    file = tmp_path / "dequant.json"
    saved = json.loads(file.read_text())
    saved["targets"] = {"held": 1, "judged": 1 + len(misses), "misses": misses}
    file.write_text(json.dumps(saved))
    assert run(capsys, tmp_path, "--load", str(file))[0] == 0
    strict, out = run(capsys, tmp_path, "--load", str(file), "--strict")
    assert strict == code
    assert all(f"missed  {miss}" in out for miss in misses)


def test_json_is_all_there_is_on_stdout(capsys, tmp_path):
    _, out = run(capsys, tmp_path, "--formats", "q4_0", "--sections", "B", "--json")
    assert json.loads(out) == json.loads((tmp_path / "dequant.json").read_text())


def test_a_miss_is_bold_on_the_page_and_no_in_its_row(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(targets, "TO_MEMORY", 1e9)
    page = tmp_path / "page.md"
    _, out = run(capsys, tmp_path, "--formats", "q4_0", "--sections", "A", "--docs", str(page))
    row = next(line for line in page.read_text().splitlines() if line.startswith("| q4_0"))
    assert row.count("**") == 2  # with two threads; one thread has no target
    assert next(line for line in out.splitlines() if line.startswith("q4_0")).endswith("  NO")


def test_nothing_to_draw_is_no_picture(capsys, tmp_path):
    run(capsys, tmp_path, "--formats", "q4_0", "--sections", "D")
    assert not (tmp_path / "dequant.png").exists()


def test_without_matplotlib_the_rest_is_written(capsys, tmp_path, monkeypatch):
    def no_matplotlib(*args):
        raise ImportError

    monkeypatch.setattr(plot, "draw", no_matplotlib)
    assert command.main(["--formats", "q4_0", "--sections", "A", "--out", str(tmp_path)], TINY) == 0
    assert "no picture: pip install matplotlib" in capsys.readouterr().err
    assert (tmp_path / "dequant.json").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--formats", "q4_9"], "unknown format 'q4_9'"),
        (["--sections", "A,F"], "expected some of A, B, C, D, E, got 'A,F'"),
        (["--sections", ""], "expected some of A, B, C, D, E, got ''"),
        (["--threads", "0"], "--threads: expected a whole number from 1 up, got '0'"),
        (["--load", "no-such.json"], "no-such.json"),
    ],
)
def test_wrong_usage(capsys, tmp_path, argv, message):
    with pytest.raises(SystemExit) as error:
        command.main([*argv, "--out", str(tmp_path)], TINY)
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_a_file_that_is_no_report_is_refused(capsys, tmp_path):
    file = tmp_path / "other.json"
    file.write_text('{"sections": {}}')
    with pytest.raises(SystemExit):
        command.main(["--load", str(file)], TINY)
    assert "not a report of this benchmark, it lacks machine, plan, targets" in capsys.readouterr().err
