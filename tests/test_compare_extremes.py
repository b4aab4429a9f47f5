"""`compare`: numbers whose squares, differences or digits are beyond float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cbquant._compare import _figures
from tests.test_compare import figures, found, one


@pytest.mark.parametrize("piece", [300, 1 << 17])
@pytest.mark.parametrize("size", [1e-320, 1e-250, 1e-162, 1e160, 1e300])
def test_sizes_whose_squares_are_no_float64(size, piece, monkeypatch):
    monkeypatch.setattr(_figures, "_PIECE", piece)
    x, y = np.random.default_rng(0).uniform(0.5, 1, (2, 40, 100))
    row, plain = one(x * size, y * size), figures(x, y)
    assert found(row)[1:] == pytest.approx(plain[1:], rel=1e-11 if size > 1e-300 else 1e-2)
    assert row.rmse == pytest.approx(plain[0] * size, rel=1e-2)
    assert (row.differing, row.note) == (np.count_nonzero(x * size != y * size), "")


def test_sizes_may_differ_between_pieces_and_sides(monkeypatch):
    monkeypatch.setattr(_figures, "_PIECE", 32)
    x = np.repeat([1e-300, 1.0, 1e200, 0.0], 32).reshape(4, 32)
    y = np.repeat([2e-300, 1.0, 1e200, 0.0], 32).reshape(4, 32)
    assert found(one(x, y)) == pytest.approx((5e-301, 0, 1, 0, 0), rel=1e-9)
    assert one(x[:1] * 1e300, x[:1]).cosine == pytest.approx(1)
    assert one(x[:1], x[2:3]).relative_error == math.inf  # 1e500 times as much


def test_differences_beyond_float64_are_told():
    huge = np.full((1, 32), 1.7e308)
    row = one(huge, -huge)
    assert found(row) == (None,) * 5
    assert (row.note, row.differing) == ("the differences are beyond the range of float64", 32)


def test_whole_numbers_that_float64_rounds_differ():
    exact = [0, -1, 2**53, 2**53 + 2, -(2**63), 2**62 + 2**20]
    rounded = [2**53 + 1, -(2**53) - 1, 2**54 + 2, 2**63 - 1]
    x = np.array(exact + rounded)
    row = one(x, x.astype(np.float64))
    assert (row.differing, row.relative_error, row.is_equal) == (len(rounded), 0, False)
    y = x.astype(np.float64)
    y[-1] = np.nan
    assert one(x, y).differing == len(rounded)
    x = np.array([2**64 - 1, 2**53 + 1, 2**63], np.uint64)
    assert one(x.astype(np.float64), x).differing == 2
