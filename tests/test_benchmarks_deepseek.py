"""benchmarks.deepseek: what is measured computes the same everywhere, and its arithmetic."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import ceilings, report
from benchmarks.deepseek import cases, command, elementwise, limits, peers, targets
from benchmarks.deepseek.plan import DTYPES, Plan
from benchmarks.timing import Timing

TINY = Plan(
    rounds=2,
    sample_seconds=0,
    tokens=12,
    few_tokens=(1,),
    columns=64,
    head=70,
    experts=20,
    copy_bytes=1 << 16,
    positions=90,
    choices=((30, 4),),
)
MAKERS = [*elementwise.BY_MEMORY, *elementwise.BY_ARITHMETIC]


def run(capsys, tmp_path, *argv, tiny=TINY):
    code = command.main([*argv, "--out", str(tmp_path)], tiny)
    return code, capsys.readouterr().out


# --- cases -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
@pytest.mark.parametrize("tokens", [1, 12])
def test_numpy_computes_the_same(maker, tokens):
    case = maker(TINY, tokens, "float32")
    case.own(1)()
    cases.check(case, case.numpy(), "NumPy")
    first = [out.copy() for out in case.outs]
    for out in case.outs:
        out[...] = 0
    case.own(2)()
    assert all(np.array_equal(a, b) for a, b in zip(first, case.outs, strict=True))
    with pytest.raises(RuntimeError, match=f"{maker.__name__.partition('_128')[0]}.*: a peer computes something else"):
        cases.check(case, tuple(out + 1 for out in case.outs), "a peer")


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_are_those_of_the_arrays(maker, dtype):
    case = maker(TINY, 12, dtype)
    case.own(1)()
    assert case.written == sum(out.nbytes for out in case.outs)
    assert case.read > 0
    assert (case.numpy is None) == (dtype != "float32")


def test_torch_computes_the_same():
    torch = pytest.importorskip("torch")
    for maker in MAKERS:
        case = maker(TINY, 12, "float32")
        case.own(1)()
        cases.check(case, case.torch(torch)(), "torch")
        half = maker(TINY, 12, "bfloat16")
        half.own(1)()
        found = half.torch(torch)()
        results = found if isinstance(found, tuple) else (found,)
        cases.check(half, tuple(np.asarray(result.float()) for result in results), "torch", 0.1)


# --- ceilings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("offset", [0, 5])
def test_copies_copy_all_of_it(threads, offset):
    source = np.random.default_rng(0).integers(0, 256, 10_001, dtype=np.uint8)[offset:]
    memory = np.zeros(source.size + 64, np.uint8)
    out = memory[64 - offset :][: source.size]
    for name, calls in ceilings.memory_copies(source, out, ceilings.Crew(threads)).items():
        memory[...] = 0
        calls[0]()
        assert np.array_equal(out, source), name
        assert not memory[: 64 - offset].any()


def test_the_limit_is_a_copy_and_reading_the_rest():
    assert limits.limit(300, 100, copying=100.0, reading=200.0) == 3
    assert limits.limit(100, 100, copying=100.0, reading=200.0) == 2
    assert limits.limit(100, 300, copying=100.0, reading=200.0) == 4
    assert limits.limit(300, 100, copying=100.0, reading=0.0) == 4  # where reading could not be measured


def test_parts_of_memory_speed_are_judged_with_two_threads():
    case = elementwise.vector_add(TINY, 4, "float32")
    own = Timing(2 * limits.limit(case.read, case.written, 1e9, 2e9), 0.0)
    rows = [limits._row(case, dtype, threads, own, 1e9, 2e9) for dtype, threads in [("float32", 1), ("bfloat16", 2)]]
    assert [row["figure"] for row in rows] == [0.5, 0.5]
    assert rows[0]["judged"] is None
    assert report.summarize({"A": rows})["misses"] == ["A: vector_add, bfloat16, 2 threads: 0.50, target >= 0.8"]


def test_targets_next_to_torch():
    found = {maker.__name__: targets.of_torch(maker.__name__, True) for maker in MAKERS}
    assert {name for name, target in found.items() if target} == {
        "compressor_pool",
        "compressor_pool_128",
        "mhc_sinkhorn_split",
        "router_sqrtsoftplus",
    }
    assert not any(targets.of_torch(maker.__name__, False) for maker in MAKERS)


# --- end to end --------------------------------------------------------------------------------------------


def test_a_run(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "torch_version", dict)
    page = tmp_path / "docs" / "page.md"
    code, out = run(capsys, tmp_path, "--docs", str(page))
    assert code == 0
    saved = json.loads((tmp_path / "deepseek.json").read_text())
    assert saved["benchmark"] == "deepseek"
    assert saved["plan"]["tokens"] == 12
    rows = saved["sections"]["A"]
    assert [row["format"] for row in rows] == [
        maker.__name__ for maker in elementwise.BY_MEMORY for _ in range(len(DTYPES) * 2)
    ]
    assert {(row["group"], row["variant"]) for row in rows} == {
        (dtype, threads) for dtype in DTYPES for threads in ("1 thread", "2 threads")
    }
    assert sum(row["judged"] is not None for row in rows) == 3 * 3 + 1
    assert {row["variant"] for row in saved["sections"]["B"]} == {"T = 12", "T = 1"}
    assert len(saved["sections"]["B"]) == 2 * len(MAKERS)
    assert "C" not in saved["sections"]
    assert "no torch: pip install torch" in out
    assert "\nA. Next to memory: bfloat16\n" in out
    assert "A prompt has\n12 tokens of 64 elements." in page.read_text()
    assert "\n## B. Next to NumPy: 1 thread\n" in page.read_text()
    again, second = run(capsys, tmp_path / "two", "--load", str(tmp_path / "deepseek.json"))
    assert (again, second) == (0, out)


def test_operators_next_to_a_peer_like_torch(monkeypatch):
    """The real one is not everywhere: its place is taken by what NumPy computes."""
    torch = types.ModuleType("torch")
    used = []
    torch.set_num_threads = used.append
    torch.inference_mode = __import__("contextlib").nullcontext
    monkeypatch.setitem(sys.modules, "torch", torch)

    def with_torch(maker):
        def make(plan, tokens, dtype):
            case = maker(plan, tokens, dtype)
            return case._replace(torch=lambda module: case.numpy)

        make.__name__ = maker.__name__
        return make

    monkeypatch.setattr(peers, "BY_MEMORY", tuple(map(with_torch, elementwise.BY_MEMORY)))
    monkeypatch.setattr(peers, "BY_ARITHMETIC", tuple(map(with_torch, elementwise.BY_ARITHMETIC)))
    done = []
    rows = peers.next_to_torch(TINY, done.append)
    assert len(rows) == 2 * 2 * len(MAKERS)
    assert done == [maker.__name__ for maker in MAKERS]
    assert {1, 2} == {*used}
    judged = {(row["format"], row["variant"]) for row in rows if row["judged"]}
    assert ("mhc_sinkhorn_split", "T = 12") in judged
    assert ("mhc_sinkhorn_split", "T = 1") not in judged


def test_a_peer_that_computes_something_else_ends_the_run(monkeypatch):
    def wrong(plan, tokens, dtype):
        case = elementwise.vector_add(plan, tokens, dtype)
        return case._replace(numpy=lambda: case.outs[0] + 1)

    monkeypatch.setattr(peers, "BY_MEMORY", (wrong,))
    monkeypatch.setattr(peers, "BY_ARITHMETIC", ())
    with pytest.raises(RuntimeError, match="vector_add: NumPy computes something else"):
        peers.next_to_numpy(TINY, lambda name: None)


def test_strict_tells_of_misses(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(targets, "OF_MEMORY", 1e9)
    argv = ("--operators", "mhc_collapse", "--sections", "A", "--threads", "2")
    code, out = run(capsys, tmp_path, *argv, "--strict")
    assert code == 1
    assert "missed  A: mhc_collapse, float32, 2 threads: " in out


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--quick"], {"rounds": 3}),
        (["--operators", "route,mhc_expand"], {"operators": ("route", "mhc_expand")}),
        (["--tokens", "100", "--columns", "32", "--threads", "4"], {"tokens": 100, "columns": 32, "threads": (4,)}),
    ],
)
def test_options(argv, expected):
    assert command._plan(command._parser().parse_args(argv), TINY) == replace(TINY, **expected)


def test_operators_choose_makers():
    chosen = elementwise.chosen(MAKERS, ("compressor_pool", "route"))
    assert [maker.__name__ for maker in chosen] == ["compressor_pool", "compressor_pool_128", "route"]
    assert elementwise.chosen(MAKERS, ()) == MAKERS


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--operators", "rope"], "--operators: expected some of vector_add, mhc_collapse,"),
        (["--tokens", "0"], "expected a whole number from 1 up, got '0'"),
        (["--sections", "A,F"], "expected some of A, B, C, D, E, got 'A,F'"),
        (["--formats", "q4_0"], "unrecognized arguments: --formats q4_0"),
        (["--load", "no-such.json"], "no-such.json"),
    ],
)
def test_wrong_usage(capsys, tmp_path, argv, message):
    with pytest.raises(SystemExit) as error:
        command.main([*argv, "--out", str(tmp_path)], TINY)
    assert error.value.code == 2
    assert message in capsys.readouterr().err
