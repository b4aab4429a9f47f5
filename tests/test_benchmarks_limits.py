"""What benchmarks share: weights, turns, a machine at rest, and what a core can do at most."""

from __future__ import annotations

import numpy as np
import pytest

import cbquant
from benchmarks import blocks, machine, peaks, timing
from benchmarks.ceilings import Crew
from cbquant import _core

with_limits = pytest.mark.skipif(peaks.load_peaks()[0] is None, reason=peaks.load_peaks()[1])


@pytest.fixture(autouse=True)
def small_cache(monkeypatch):
    """A last cache that copies of tiny weights exceed."""
    monkeypatch.setattr("cbquant._core.last_cache_bytes", lambda: 100_000)


@pytest.mark.parametrize("fmt", cbquant.formats(), ids=lambda f: f.name)
def test_blocks_to_multiply_with_have_values_like_weights(fmt):
    raw = blocks.weight_blocks(fmt, 16384)
    assert (raw.dtype, raw.shape) == (np.uint8, (16384 // fmt.elements * fmt.bytes,))
    rows = np.abs(cbquant.dequant(raw, fmt.name).reshape(-1, fmt.elements))
    if fmt.kind != "plain":
        assert rows.max() <= 16
        assert rows.max(axis=1).min() >= 2.0**-10
        assert len({row.tobytes() for row in raw.reshape(-1, fmt.bytes)}) > 48
    assert (raw == blocks.weight_blocks(fmt, 16384)).all()
    assert (raw != blocks.weight_blocks(fmt, 16384, seed=1)).any()


def test_a_ring_that_would_take_too_much_memory_is_not_cold(monkeypatch):
    array = np.arange(5000, dtype=np.float32)
    assert blocks.ColdCopies(array).are_cold
    assert len(blocks.ColdCopies(array).copies) == 11
    monkeypatch.setattr(blocks, "_MAX_BYTES", 200_000)
    warm = blocks.ColdCopies(array)
    assert (warm.are_cold, len(warm.copies)) == (False, 1)


def test_copies_are_arrays_of_their_own_at_64_byte_boundaries():
    array = np.arange(1200, dtype=np.float32).reshape(300, 4)
    copies = blocks.ColdCopies(array).copies
    for copy in copies:
        assert copy.ctypes.data % 64 == 0
        assert np.array_equal(copy, array)
        copy[...] = 0
    assert len(copies) > 2


def test_quiet_waits_until_other_threads_sleep(monkeypatch):
    # Three looks of a millisecond; in the first two another thread runs all the time.
    used = iter([0.0, 1e-3, 1e-3, 2e-3, 2e-3, 2e-3])
    looks = []
    monkeypatch.setattr(timing.time, "process_time", lambda: next(used))
    monkeypatch.setattr(timing.time, "sleep", looks.append)
    timing._wait_for_quiet()
    assert looks == [1e-3] * 3
    monkeypatch.setattr(timing, "_wait_for_quiet", lambda: looks.append("wait"))
    timing.measure({"a": [lambda: looks.append("a")]}, rounds=2, quiet=True)
    assert looks[3:] == ["wait", "a", "a"] * 2


def test_every_level_of_instructions_has_its_limits():
    names = {name for name, _, _ in _core.isa_levels()} - {"scalar"}
    assert names <= peaks.INTEGERS.keys()
    assert names <= peaks.FLOATS.keys()


@with_limits
@pytest.mark.parametrize("functions", [peaks.INTEGERS, peaks.FLOATS], ids=["integers", "floats"])
@pytest.mark.parametrize("threads", [1, 2])
def test_limits_of_every_level_that_runs_here(functions, threads, monkeypatch):
    monkeypatch.setattr(peaks, "_ROUNDS", 7)
    for level, available, _ in _core.isa_levels():
        if available and level != "scalar":
            found = peaks.arithmetic(functions, level, Crew(threads))
            assert found.keys() == set(functions[level])
            for peak in found.values():
                assert peak.work > 0
                assert peak.work % (7 * threads * 2) == 0
                peak.call()


@with_limits
@pytest.mark.parametrize("ahead", [0, 4096])
def test_reading_reads_every_byte(ahead):
    library, _ = peaks.load_peaks()
    memory = machine.touched_memory(1024)
    for place in range(0, 1024, 37):
        memory[:] = 0
        assert library.read_memory(memory.ctypes.data, memory.nbytes, ahead) == 0
        memory[place] = 1
        assert library.read_memory(memory.ctypes.data, memory.nbytes, ahead) == 1 << 8 * (place % 8)


@with_limits
def test_memory_to_read_is_more_than_twice_the_last_cache_and_taken_in_turns(monkeypatch):
    monkeypatch.setattr(peaks, "_CHUNK", 4096)
    begins = []

    class Library:
        @staticmethod
        def read_memory(begin, nbytes, ahead):
            begins.append((begin, nbytes))

    monkeypatch.setattr(peaks, "load_peaks", lambda: (Library, ""))
    reads = peaks.Memory(last_cache=10_000).reads(Crew(1))
    assert {peak.work for peak in reads.values()} == {4096}
    for _ in range(4):
        for peak in reads.values():
            peak.call()
    ring = [begin for begin, _ in begins]
    count = len(set(ring))
    assert count * 4096 > 20_000
    assert ring[:count] * 2 == ring[: 2 * count]


def test_a_busy_machine_is_noted(monkeypatch):
    monkeypatch.setattr(machine.os, "getloadavg", lambda: (0.1, 0, 0))
    assert machine.notes() == []
    monkeypatch.setattr(machine.os, "getloadavg", lambda: (3.0, 0, 0))
    assert machine.notes() == ["the machine was not idle before (load 3.0): do not trust this run"]
