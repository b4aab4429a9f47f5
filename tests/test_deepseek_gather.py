"""gather_list against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cbquant
from cbquant.deepseek import gather_list
from cbquant.reference import deepseek as reference
from tests.attention_inputs import same_bits

NUMBERS = np.array([2])


@given(data=st.data())
def test_gather_lists(data: st.DataObject) -> None:
    n, window = data.draw(st.integers(0, 60)), data.draw(st.integers(0, 70))
    chosen = np.array(data.draw(st.lists(st.integers(-1, n - 1), max_size=40)), np.int32)
    expected = reference.gather_list(chosen, n, window)
    assert same_bits(gather_list(chosen, n, window), expected)
    rows = np.stack([chosen, chosen[::-1], np.where(np.arange(len(chosen)) % 2, chosen, -1)])
    assert same_bits(gather_list(rows, n, window), reference.gather_list(rows, n, window))
    out = np.zeros((3, len(expected) + 2), np.int32)
    assert gather_list(rows, n, window, out=out) is out
    assert (out[0] == [*expected, -1, -1]).all()


@given(data=st.data())
def test_gather_lists_of_caches_of_several_lengths(data: st.DataObject) -> None:
    """As many as the lists, or one number for all, of the cache and of the window."""
    batch, k = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 20))

    def numbers(most: int) -> Any:
        one = st.integers(0, most)
        return data.draw(st.one_of(one, st.lists(one, min_size=batch, max_size=batch)))

    n, window = numbers(60), numbers(70)
    rng = np.random.default_rng(k)
    rows = [rng.integers(-1, size, k) for size in np.broadcast_to(n, batch)]
    chosen = np.array(rows, np.int32).reshape(batch, k)
    expected = reference.gather_list(chosen, n, window)
    assert same_bits(gather_list(chosen, n, window), expected)
    out = np.zeros((batch, expected.shape[1] + 2), np.int32)
    assert gather_list(chosen, np.array(n, np.uint16), window, out=out) is out
    assert same_bits(out[:, :-2].copy(), expected)
    assert (out[:, -2:] == -1).all()


def test_gather_lists_of_a_long_cache() -> None:
    chosen = np.random.default_rng(0).permutation(1_000_000)[:2048]
    assert same_bits(gather_list(chosen, 1_000_000), reference.gather_list(chosen, 1_000_000))


def test_errors_name_the_argument() -> None:
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: gather_list([8], 8), ValueError, "topk: expected -1 to 7, got 8"),
        (lambda: gather_list([1.0], 8), TypeError, "topk: expected integers"),
        (lambda: gather_list([1], 8, -1), ValueError, "window: expected 0 to"),
        (lambda: gather_list([1], -1), ValueError, "n_kv: expected 0 to"),
        (lambda: gather_list([[1], [8]], [9, 8]), ValueError, "topk: expected -1 to 7, got 8 in list 1"),
        (
            lambda: gather_list([[1], [1]], [9]),
            ValueError,
            r"n_kv: expected a number, or \[B\] with B = 2, got .* \(1,\)",
        ),
        (lambda: gather_list([[1], [1]], [[9, 9]]), ValueError, r"n_kv: expected a number, or \[B\]"),
        (lambda: gather_list([[1], [1]], 9, [1, 2, 3]), ValueError, r"window: expected a number, or \[B\] with B = 2"),
        (lambda: gather_list([1], [9]), ValueError, r"n_kv: expected a number for one list, got shape \(1,\)"),
        (lambda: gather_list([[1]], [2**31]), ValueError, "n_kv: expected 0 to 2147483647, got 2147483648"),
        (lambda: gather_list([[1]], 9, [-1]), ValueError, "window: expected 0 to 2147483647, got -1"),
        (lambda: gather_list([[1]], [2.0]), TypeError, "n_kv: expected integers"),
        (lambda: gather_list([[1]], NUMBERS, out=NUMBERS[None].view(np.int32)), ValueError, "it overlaps n_kv"),
        (lambda: gather_list([[1]], 9, NUMBERS, out=NUMBERS[None].view(np.int32)), ValueError, "it overlaps window"),
        (lambda: gather_list([1], 8, 2, out=np.empty(2, np.int32)), ValueError, "out: expected room for 3 positions"),
        (lambda: gather_list([1], 8, 2, out=np.empty(3, np.int64)), TypeError, "out: expected dtype int32"),
    ]
    for call, kind, text in cases:
        with pytest.raises(kind, match=text):
            call()


def test_the_core_checks_too() -> None:
    topk, two = np.zeros((2, 3), np.int64), np.full(2, 4, np.int64)
    good = [topk, two, two, np.empty((2, 4), np.int32), np.empty(2, np.int64)]
    for place, wrong, text in [
        (0, topk - 2, "topk: expected -1 to 3, got -2 in list 0"),
        (1, two[:1], "n_kv: expected 2 rows of 8 bytes, got 8 bytes"),
        (1, -two, "n_kv: expected 0 to 2147483647, got -4"),
        (2, np.zeros(3, np.int64), "window: expected 2 rows of 8 bytes, got 24 bytes"),
        (2, two + 2**31, "window: expected 0 to 2147483647, got 2147483652"),
        (4, np.empty(1, np.int64), "counts: expected 2 rows"),
    ]:
        with pytest.raises(ValueError, match=text):
            cbquant._core.gather_list(*good[:place], wrong, *good[place + 1 :])  # type: ignore[call-arg]
