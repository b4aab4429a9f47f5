"""Who the benchmark of products compares with: each multiplies right, and what does not is left out."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

import cbquant
from benchmarks import blocks
from benchmarks.matmul import dense, ggml, ggml_probe, peers, plan, torch_linear
from benchmarks.matmul.weights import Dense, Operand, Packed, aligned, own_operand, rows_of_x
from cbquant import _formats

Q4_0 = _formats.get("q4_0")
with_ggml = pytest.mark.skipif(isinstance(ggml.build("pywhispercpp"), str), reason="pywhispercpp has no ggml here")


@pytest.fixture(autouse=True)
def small_cache(monkeypatch):
    """A last cache that copies of tiny weights exceed."""
    monkeypatch.setattr("cbquant._core.last_cache_bytes", lambda: 100_000)


@with_ggml
@pytest.mark.parametrize("arrangement", ggml.arrangements("pywhispercpp"))
def test_products_of_ggml(arrangement):
    found = set()
    for fmt in cbquant.formats():
        weights = Packed(fmt, 64, 512)
        with ExitStack() as stack:
            operand = ggml.arranged("pywhispercpp", arrangement, weights, stack)
            if operand is None:
                continue
            found.add(fmt.name)
            for m, threads in ((1, 1), (5, 2)):
                x, out = rows_of_x(m, 512), aligned(m, 64)
                calls = operand.calls(x, out, threads)
                assert len(calls) == len(weights.cold.copies)
                for call in (calls[0], calls[-1]):
                    out[...] = 0
                    call()
                    expected = x @ weights.floats.T
                    assert np.linalg.norm(out - expected) < operand.tolerance * np.linalg.norm(expected)
    if arrangement == ggml.PLAIN:
        assert found >= {"q4_0", "q4_k", "q6_k", "q8_0", "iq1_m", "iq2_xxs", "iq4_xs", "mxfp4", "f16"}
    assert found
    assert "i8" not in found  # a type of ggml's without a product


@with_ggml
def test_a_build_of_ggml_works_in_a_process_of_its_own():
    assert ggml_probe.failure("pywhispercpp", ggml.PLAIN) == ""


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("kill -ILL $$", "ends the process with SIGILL"),
        ("echo first >&2; echo 'OSError: no such library' >&2; exit 1", "OSError: no such library"),
        ("exit 3", "fails"),
        ("exit 0", ""),
    ],
)
def test_a_build_that_ends_its_process_is_found_out(monkeypatch, tmp_path, script, reason):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(ggml_probe.sys, "executable", str(python))
    assert ggml_probe.failure.__wrapped__("pywhispercpp", "AMX") == reason


@with_ggml
def test_an_arrangement_that_does_not_work_is_left_out_and_noted(monkeypatch):
    monkeypatch.setattr(peers, "failure", lambda package, name: "" if name == "plain" else "ends the process")
    with ExitStack() as stack:
        loaded = peers.PEERS["ggml"].packed(Packed(Q4_0, 64, 512), stack)
        assert [operand.name for operand in loaded] == ["ggml plain"]
    assert peers.notes(["ggml"]) == ["no ggml repacked: it ends the process"]


def test_a_package_that_is_not_there_is_noted(monkeypatch):
    monkeypatch.setitem(peers.PEERS, "ggml", peers._ggml("ggml", "no-such-package"))
    assert "ggml" not in peers.chosen(None)
    assert peers.notes(["ggml"])[0].startswith("no ggml (pip install no-such-package): ")
    assert ggml.arrangements("no-such-package") == []


def test_numpy_multiplies_with_as_many_threads_as_it_is_told():
    weights = Dense(64, 512)
    with ExitStack() as stack:
        loaded = dense.load(weights, stack)
    assert len(loaded) == (dense.thread_setter() is not None)
    for operand in loaded:
        x, out = rows_of_x(5, 512), aligned(5, 64)
        assert operand.error(x, out, 2, x @ weights.floats.T) < 1e-6


def test_without_a_known_blas_numpy_is_left_out(monkeypatch):
    monkeypatch.setattr(dense, "thread_setter", lambda: None)
    assert "numpy" not in peers.chosen(None)
    assert peers.notes(["numpy"]) == ["no numpy (pip install numpy): its BLAS has no number of threads to set"]


@pytest.mark.skipif(not torch_linear.installed(), reason="torch is not installed")
def test_torch_multiplies():
    weights = Dense(64, 512)
    with ExitStack() as stack:
        for operand in torch_linear.load(weights, stack):
            x, out = rows_of_x(5, 512), aligned(5, 64)
            assert operand.error(x, out, 2, x @ weights.floats.T) < operand.tolerance


@pytest.mark.parametrize("mode", plan.MODES)
def test_products_of_cbquant(mode):
    operand = own_operand(Packed(Q4_0, 64, 512), mode)
    x, out = rows_of_x(5, 512), aligned(5, 64)
    expected = x @ Packed(Q4_0, 64, 512).floats.T
    assert operand.error(x, out, 2, expected) < operand.tolerance
    assert operand.error(x, out, 2, 2 * expected) == pytest.approx(0.5, abs=0.01)


def test_an_error_is_a_part_of_what_is_expected_and_old_results_do_not_count():
    expected = np.full((2, 3), 3.0, np.float32)
    out = expected.copy()
    idle = Operand("idle", lambda x, out, threads: [lambda: None], blocks.Turns(1), 0.1)
    assert not idle.error(out, out, 1, expected) <= idle.tolerance  # NaN
    returns = replace(idle, calls=lambda x, out, threads: [lambda: 2.0], result=lambda value: np.full((2, 3), value))
    assert returns.error(out, out, 1, expected) == pytest.approx(1 / 3)


def test_cold_calls_take_turns_with_all_that_use_the_same_copies():
    used = []

    def calls(x, out, threads):
        return [lambda number=number: used.append((threads, number)) for number in range(3)]

    operand = Operand("any", calls, blocks.Turns(3), 0.1)
    one, two = (operand.call(np.ones(1), np.ones(1), threads, cold=True) for threads in (1, 2))
    for call in (one, one, two, one, two):
        call()
    assert used == [(1, 0), (1, 1), (2, 2), (1, 0), (2, 1)]
    used.clear()
    warm = operand.call(np.ones(1), np.ones(1), 1, cold=False)
    for _ in range(2):
        warm()
    assert used == [(1, 0)] * 2
