"""The blocks that benchmarks decode."""

import numpy as np

from benchmarks import blocks


def test_cold_blocks_are_copies_in_turns_that_exceed_the_last_cache(monkeypatch):
    monkeypatch.setattr("cbquant._core.last_cache_bytes", lambda: 1000)
    raw = np.arange(200, dtype=np.uint8)
    cold = blocks.ColdCopies(raw)
    turns = [cold.next() for _ in range(22)]
    assert all(np.array_equal(turn, raw) for turn in turns)
    assert len({turn.ctypes.data for turn in turns}) == 11
    assert turns[0] is turns[11]
