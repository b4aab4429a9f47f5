"""benchmarks.deepseek: the sections of attention, of the indexer and of top-k."""

from __future__ import annotations

import sys
import types
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.deepseek import attention, command, peers, targets, topk
from benchmarks.deepseek.plan import DTYPES, Plan

TINY = Plan(rounds=2, sample_seconds=0, threads=(1, 2), head=70, positions=90, choices=((30, 4), (65_536, 512)))


@pytest.fixture(autouse=True)
def _without_torch(monkeypatch):
    monkeypatch.setattr(peers, "torch_version", dict)


@pytest.mark.parametrize("maker", attention.MAKERS, ids=lambda maker: maker.__name__)
def test_every_case_runs_and_says_what_it_does(maker):
    for dtype in DTYPES:
        work = maker(TINY, dtype)
        result = work.own(2)()
        assert np.isfinite(result.astype(np.float64)).all()
        assert work.read > 0
        assert work.operations >= work.read / 4
    full, half = maker(TINY, "float32"), maker(TINY, "float16")
    assert (full.operator, full.operations) == (half.operator, half.operations)
    assert full.read == 2 * half.read


def test_bytes_and_operations_of_a_cache_that_is_read_once():
    plan = replace(TINY, positions=1000, head=512)
    work = attention.shared_cache(plan, "float16")
    assert work.read == 1000 * 512 * 2
    assert work.operations == 4 * 64 * 1000 * 512


def test_a_row_for_each_dtype_and_number_of_threads():
    done = []
    rows = attention.next_to_limits(replace(TINY, operators=("indexer_score", "sdpa_decode_sink")), done.append)
    assert done == ["shared_cache", "grouped_heads", "own_caches", "indexer_score"]
    assert len(rows) == 4 * len(DTYPES) * 2
    assert all(row["figure"] > 0 and row["judged"]["target"] == 1 for row in rows)
    assert {row["variant"] for row in rows} == {"1 thread", "2 threads"}


def test_the_promise_is_the_slower_of_the_two():
    work = attention.Work("indexer_score", lambda threads: print, 800, 600.0)
    assert attention.promised_seconds(work, 100.0, 1e9) == pytest.approx(10)
    assert attention.promised_seconds(work, 1e9, 100.0) == pytest.approx(10)
    row = attention._row(work, "float32", 2, 5.0, 100.0, 1000.0)
    assert row["figure"] == pytest.approx(2)
    assert row["of_reading"] == pytest.approx(1.6)
    assert row["of_multiplying"] == pytest.approx(0.12)
    assert row["judged"]["held"]
    assert attention._row(work, "float32", 2, 5.0, 0.0, 1000.0)["judged"] is None  # where reading was not measured
    assert targets.of_limits("mla_decode") is None


def test_topk_next_to_numpy():
    rows = topk.next_to_peers(TINY, lambda name: None)
    assert [(row["group"], row["variant"]) for row in rows] == [
        ("times NumPy", "4 of 30"),
        ("times NumPy", "512 of 65536"),
    ]
    assert [row["judged"] and row["judged"]["target"] for row in rows] == [None, 5]


def test_topk_next_to_a_peer_like_torch(monkeypatch):
    torch = types.ModuleType("torch")
    torch.set_num_threads = lambda threads: None
    torch.inference_mode = __import__("contextlib").nullcontext

    class Tensor:
        def __init__(self, values):
            self.values = values

        def topk(self, k):
            return types.SimpleNamespace(indices=topk.in_numpy(self.values, k))

    torch.from_numpy = Tensor
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(peers, "torch_version", lambda: {"torch": "1"})
    rows = topk.next_to_peers(TINY, lambda name: None)
    assert [row["judged"] and row["judged"]["target"] for row in rows] == [None, None, 5, 3]


def test_a_peer_that_chooses_others_ends_the_run(monkeypatch):
    monkeypatch.setattr(topk, "in_numpy", lambda score, k: np.argsort(score)[:k])
    with pytest.raises(RuntimeError, match="indexer_topk, 4 of 30: NumPy chooses others"):
        topk.next_to_peers(TINY, lambda name: None)


def test_sections_and_operators_are_chosen(capsys, tmp_path):
    argv = ("--sections", "D,E", "--operators", "indexer_topk,mla_decode", "--positions", "70", "--threads", "1")
    assert command.main([*argv, "--out", str(tmp_path)], TINY) == 0
    out = capsys.readouterr().out
    assert "D. Next to the machine's limits: float32" in out
    assert "E. Top-k: times NumPy" in out
    assert "mla_decode" in out
    assert "indexer_score" not in out
