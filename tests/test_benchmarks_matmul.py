"""The benchmark of products, end to end on tiny sizes. Nothing about speed."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

import cbquant
from benchmarks import blocks, peaks
from benchmarks.matmul import command, peers, plan, targets
from benchmarks.matmul.plan import Plan
from benchmarks.matmul.weights import Operand

BLOCK_FORMATS = [f for f in cbquant.formats() if f.kind != "plain"]
TINY = Plan(
    formats=tuple(BLOCK_FORMATS),
    rounds=2,
    sample_seconds=0,
    shapes=((64, 512),),
    ms=(1, 2, 5),
    cold_m=1,
    peak_ms=(5,),
    short_m=2,
)
with_limits = pytest.mark.skipif(peaks.load_peaks()[0] is None, reason=peaks.load_peaks()[1])


@pytest.fixture(autouse=True)
def small_cache(monkeypatch):
    """A last cache that copies of tiny weights exceed."""
    monkeypatch.setattr("cbquant._core.last_cache_bytes", lambda: 100_000)


def run(capsys, tmp_path, *argv, tiny=TINY):
    code = command.main([*argv, "--out", str(tmp_path)], tiny)
    return code, capsys.readouterr().out


def sections(tmp_path):
    return json.loads((tmp_path / "matmul.json").read_text())["sections"]


def test_a_run_of_two_formats(capsys, tmp_path):
    page = tmp_path / "docs" / "products.md"
    code, out = run(capsys, tmp_path, "--formats", "q4_0,IQ3_S", "--docs", str(page))
    assert code == 0
    saved = json.loads((tmp_path / "matmul.json").read_text())
    assert saved["benchmark"] == "matmul"
    assert saved["plan"] == {
        "formats": ["q4_0", "iq3_s"],
        "threads": [1, 2],
        "rounds": 2,
        "sample_seconds": 0,
        "shapes": ["64x512"],
        "m": [1, 2, 5],
        "modes": ["f32", "q8"],
    }
    rows = saved["sections"]["A"]
    assert len(rows) == 2 * 3 * 2 * 2
    assert all(row["seconds"] > 0 and row["weights_from_memory"] == (row["m"] == 1) for row in rows)
    present = peers.chosen(None)
    assert saved["peers"].keys() == present.keys()
    for row in rows:
        assert row["peer_seconds"].keys() == {peer.family for peer in present.values()}
    if "ggml" in present:
        repacked = {row["format"] for row in rows if "ggml repacked" in row["peer_seconds"]["ggml"]}
        assert repacked <= {"q4_0"}
        assert {row["format"] for row in saved["sections"]["B"]} == {"q4_0", "iq3_s", None}
    assert {row["group"] for row in saved["sections"]["E"]} == {"64x512"}
    assert all(f"\n{letter}. " in out for letter, found in saved["sections"].items() if found)
    assert f"{saved['targets']['held']} of {saved['targets']['judged']} targets held" in out
    assert "\n## A. Speed: q8, 2 threads, 64x512\n" in page.read_text()
    assert "\n| iq3_s | " in page.read_text()


@with_limits
def test_limits_are_measured_where_products_are_compared_with_them(capsys, tmp_path):
    run(capsys, tmp_path, "--formats", "q8_0", "--peers", "numpy", "--threads", "2")
    rows = sections(tmp_path)["A"]
    has_peaks = cbquant.info()["isa"] in peaks.INTEGERS
    for row in rows:
        assert bool(row["limits"]["read"]) == (row["m"] == 1)
        assert bool(row["limits"]["integers"]) == (row["m"] == 5 and has_peaks)
        assert bool(row["limits"]["floats"]) == (row["m"] == 5 and has_peaks)
    assert {row["variant"] for row in sections(tmp_path)["D"]} == {"f32, 2 threads", "q8, 2 threads"}
    assert {row["variant"] for row in sections(tmp_path)["F"]} == ({"M=5"} if has_peaks else set())


def test_without_a_compiler_there_are_no_limits_and_the_report_says_so(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    absent = peaks.load_peaks.__wrapped__()
    assert absent[0] is None
    assert "no C compiler" in absent[1]
    monkeypatch.setattr(peaks, "load_peaks", lambda: absent)
    monkeypatch.setattr(command, "load_peaks", lambda: absent)
    _, out = run(capsys, tmp_path, "--formats", "q4_0", "--peers", "numpy")
    assert absent[1] in out
    assert sections(tmp_path)["D"] == sections(tmp_path)["F"] == []


def test_every_format_and_precision_runs(capsys, tmp_path):
    tiny = replace(TINY, ms=(2,), modes=plan.MODES, formats=tuple(cbquant.formats()))
    code, out = run(capsys, tmp_path, "--threads", "1", "--peers", "numpy", tiny=tiny)
    assert code == 0
    measured = {(row["format"], row["mode"]) for row in sections(tmp_path)["A"]}
    blocks_of_all_modes = set(itertools.product([f.name for f in BLOCK_FORMATS], plan.MODES))
    plain = {(f.name, mode) for f in cbquant.formats() if f.kind == "plain" for mode in ("f32", "bf16")}
    assert measured == blocks_of_all_modes | plain
    assert "no q8 of f16: precision: f16 has no integer codes" in out


def test_a_peer_whose_product_is_wrong_is_not_timed(capsys, tmp_path, monkeypatch):
    def wrong(weights, stack):
        def calls(x, out, threads):
            return [lambda: out.fill(1.0)]

        return [Operand("wrong", calls, blocks.Turns(1), 0.03)]

    monkeypatch.setitem(peers.PEERS, "numpy", peers.PEERS["numpy"]._replace(packed=wrong, absent=lambda: ""))
    _, out = run(capsys, tmp_path, "--formats", "q4_0", "--peers", "numpy", "--m", "2")
    assert "no wrong of q4_0 at M=2: its product is wrong by 1.0e+00" in out
    assert all("wrong" not in row["peer_seconds"].get("numpy", {}) for row in sections(tmp_path)["A"])


def test_a_wrong_product_of_cbquant_ends_the_run(capsys, tmp_path, monkeypatch):
    right = cbquant.matmul

    def matmul(x, w, precision, out, threads):
        right(x, w, precision=precision, out=out, threads=threads)
        out[-1, -1] += 1e6

    monkeypatch.setattr(cbquant, "matmul", matmul)
    with pytest.raises(RuntimeError, match="q4_0, f32, M=1: the product of cbquant is wrong by"):
        run(capsys, tmp_path, "--formats", "q4_0", "--peers", "numpy")


def test_an_earlier_run_is_shown_without_measuring(capsys, tmp_path, monkeypatch):
    _, first = run(capsys, tmp_path / "one", "--formats", "q4_0", "--peers", "numpy")
    monkeypatch.setattr(command, "run", lambda *args: pytest.fail("it measured"))
    _, second = run(capsys, tmp_path / "two", "--load", str(tmp_path / "one" / "matmul.json"))
    assert first == second


def test_strict_and_bold_tell_of_misses(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(targets, "STEP", 1e9)
    page = tmp_path / "page.md"
    argv = ("--formats", "q4_0", "--peers", "numpy", "--modes", "q8", "--threads", "1")
    assert run(capsys, tmp_path, *argv)[0] == 0
    code, out = run(capsys, tmp_path, *argv, "--strict", "--docs", str(page))
    assert code == 1
    assert "missed  G: q4_0, 64x512, q8, 1 thread: " in out
    assert out.count("  NO") == 1
    line = next(line for line in page.read_text().partition("## G.")[2].splitlines() if line.startswith("| q4_0"))
    assert line.count("**") == 2


def test_json_is_all_there_is_on_stdout(capsys, tmp_path):
    _, out = run(capsys, tmp_path, "--formats", "q4_0", "--peers", "numpy", "--json")
    assert json.loads(out) == json.loads((tmp_path / "matmul.json").read_text())


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--quick"], {"rounds": 3, "ms": (1, 8, 64)}),
        (["--quick", "--m", "8,1,8"], {"rounds": 3, "ms": (1, 8)}),
        (["--full"], {"ms": plan.ROWS, "modes": plan.MODES, "shapes": plan.SHAPES}),
        (["--shapes", "32x256,64x512"], {"shapes": ((32, 256), (64, 512))}),
        (["--modes", "bf16,q16", "--peers", "numpy"], {"modes": ("bf16", "q16"), "peers": ("numpy",)}),
    ],
)
def test_options(argv, expected):
    made = command._plan(command._parser().parse_args(argv), TINY)
    assert made == replace(TINY, **expected)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--formats", "q4_9"], "unknown format 'q4_9'"),
        (["--m", "1,0"], "--m: expected a whole number from 1 up, got '0'"),
        (["--modes", "f32,q4"], "--modes: expected some of f32, bf16, q8, q16, got 'q4'"),
        (["--shapes", "64x"], "--shapes: expected N and K as in 4096x4096, got '64x'"),
        (["--shapes", "64x100", "--formats", "q6_k"], "--shapes: k=100 is not a multiple of 256 (q6_k)"),
        (["--peers", "mkl"], "--peers: expected some of ggml, llama.cpp, numpy, torch, got 'mkl'"),
        (["--quick", "--full"], "--quick and --full: expected one of them"),
        (["--load", "no-such.json"], "no-such.json"),
    ],
)
def test_wrong_usage(capsys, tmp_path, argv, message):
    with pytest.raises(SystemExit) as error:
        command.main([*argv, "--out", str(tmp_path)], TINY)
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_a_report_of_another_benchmark_is_refused(capsys, tmp_path):
    file = tmp_path / "dequant.json"
    file.write_text('{"benchmark": "dequant", "machine": {}, "plan": {}, "sections": {}, "targets": {}}')
    with pytest.raises(SystemExit):
        command.main(["--load", str(file)], TINY)
    assert "a report of benchmarks.dequant, expected one of benchmarks.matmul" in capsys.readouterr().err
