"""The exponential function of the lane vocabulary (csrc/lanes/exp.h), on every path, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.paths import PATHS, Path

STRIDE = 1021  # a prime: every exponent and sign, and 4 million mantissas


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def exp(path: Path, x: NDArray[np.float32]) -> NDArray[np.float32]:
    out = np.full_like(x, 7)
    path.core.exp(x, out, path.level)
    return out


def errors(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float64]:
    """In units of the last place of the result, subnormal ones too."""
    exact = np.exp(x.astype(np.float64))
    with np.errstate(over="ignore"):
        nearest = exact.astype(np.float32)
    return np.abs(y - exact) / np.spacing(nearest).astype(np.float64)


def test_two_units_in_the_last_place_at_most(path: Path) -> None:
    x = np.arange(0, 2**32, STRIDE, dtype=np.uint64).astype(np.uint32).view(np.float32)
    y = exp(path, x)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = np.exp(x.astype(np.float64)).astype(np.float32)
    assert np.isnan(y[np.isnan(x)]).all()
    assert (y[np.isinf(expected)] == np.inf).all()
    finite = np.isfinite(expected)
    assert errors(x[finite], y[finite]).max() <= 2


def test_every_float_around_the_ends(path: Path) -> None:
    """Where the result overflows, becomes subnormal, and becomes zero."""
    for end in (88.722839, -87.336548, -103.278929, -103.972077):
        bits = np.float32(end).view(np.uint32) + np.arange(-5000, 5000, dtype=np.int64)
        x = bits.astype(np.uint32).view(np.float32)
        y = exp(path, x)
        with np.errstate(over="ignore"):
            expected = np.exp(x.astype(np.float64)).astype(np.float32)
        finite = np.isfinite(expected) & np.isfinite(y)
        assert errors(x[finite], y[finite]).max() <= 2
        assert (np.isinf(expected) != np.isinf(y)).sum() <= 1  # the last float before the end may round up


def test_special_values(path: Path) -> None:
    x = np.array([-np.inf, -1e30, -104.5, 0.0, -0.0, 1e-45, 89, 3e38, np.inf], np.float32)
    assert exp(path, x).tolist() == [0, 0, 0, 1, 1, 1, np.inf, np.inf, np.inf]
    nans = np.array([0x7F800001, 0x7FC00000, 0xFF800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(exp(path, nans)).all()


@pytest.mark.parametrize("n", [0, 1, 3, 4, 7, 8, 15, 16, 17, 100])
def test_any_length(path: Path, n: int) -> None:
    memory = np.full(n + 2, 9, np.float32)
    x = np.linspace(-3, 3, n, dtype=np.float32)
    path.core.exp(x, memory[1 : n + 1], path.level)
    assert memory[0] == memory[-1] == 9
    assert np.allclose(memory[1:-1], np.exp(x), rtol=1e-6)
