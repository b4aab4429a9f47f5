"""Rows of numbers to encode, of several kinds: the search of an encoder takes other ways with each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import touched_memory

Floats = NDArray[np.float32]


def _dense(rng: np.random.Generator, rows: int, k: int) -> Floats:
    return rng.standard_normal((rows, k), np.float32)


def _sparse(rng: np.random.Generator, rows: int, k: int) -> Floats:
    return np.where(rng.random((rows, k)) < 0.8, np.float32(0), _dense(rng, rows, k))


def _constant(rng: np.random.Generator, rows: int, k: int) -> Floats:
    return np.repeat(_dense(rng, rows, 1), k, axis=1)


def _integers(rng: np.random.Generator, rows: int, k: int) -> Floats:
    return rng.integers(-3, 4, (rows, k)).astype(np.float32)


def _spike(rng: np.random.Generator, rows: int, k: int) -> Floats:
    x = _dense(rng, rows, k)
    x[np.arange(rows), rng.integers(0, k, rows)] = 1000
    return x


DENSE = "dense"
#: Normally distributed; the same with 80 % zeros; the same number all along a row; whole numbers from -3 to 3; normally
#: distributed with one number a row that is a thousand times as large.
DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int, int], Floats]] = {
    DENSE: _dense,
    "sparse": _sparse,
    "constant": _constant,
    "integers": _integers,
    "spike": _spike,
}


def draw(distribution: str, rows: int, k: int) -> Floats:
    """Float32 ``[rows, k]``, in memory that was used before.

    >>> float((draw("sparse", 64, 256) == 0).mean().round(1))
    0.8
    """
    x = touched_memory(4 * rows * k).view(np.float32).reshape(rows, k)
    x[...] = DISTRIBUTIONS[distribution](np.random.default_rng([rows, k]), rows, k)
    return x


def importance(k: int) -> Floats:
    """The importance of columns, float32 ``[k]``: squares, of numbers that differ as activations do."""
    values = np.random.default_rng(k).standard_normal(k) ** 2 + 0.01
    return values.astype(np.float32)
