"""What is measured: an operator on arrays of some size, and the same in NumPy and torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.deepseek.plan import Plan
from benchmarks.machine import touched_memory
from benchmarks.timing import Call

Array = NDArray[Any]


class Case(NamedTuple):
    """One operator on arrays that it is given."""

    operator: str
    #: By the number of threads.
    own: Callable[[int], Call]
    #: What `own` writes.
    outs: tuple[Array, ...]
    #: Bytes that have to be read and written.
    read: int
    written: int
    #: The same in NumPy, and given the module in torch (eager): they return what `outs` has to hold. None: not for this
    #: dtype.
    numpy: Call | None
    torch: Callable[[Any], Call] | None


#: Makes a case, for a number of tokens and a dtype.
Maker = Callable[[Plan, int, str], Case]


def draw(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """Normally distributed numbers in memory that was used before.

    >>> draw((2, 3), "float16").dtype
    dtype('float16')
    """
    out = room(shape, dtype)
    rng = np.random.default_rng(seed)
    for row in out.reshape(-1, shape[-1]):
        row[...] = rng.standard_normal(shape[-1], np.float32)
    return out


def room(shape: tuple[int, ...], dtype: str) -> Array:
    """Memory for an array, used before."""
    kind = bfloat16() if dtype == "bfloat16" else np.dtype(dtype)
    nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    return touched_memory(nbytes).view(kind).reshape(shape)


def bfloat16() -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def total(*arrays: Array) -> int:
    """Their bytes.

    >>> total(np.zeros(3, np.float32), np.zeros(2, np.float16))
    16
    """
    return sum(array.nbytes for array in arrays)


def check(case: Case, found: Any, name: str, tolerance: float = 1e-4) -> None:
    """A RuntimeError where a peer did not compute the same."""
    results = found if isinstance(found, tuple) else (found,)
    for out, result in zip(case.outs, results, strict=True):
        values, wanted = np.asarray(result, np.float64), out.astype(np.float64)
        if values.shape != wanted.shape or not (np.abs(values - wanted) <= tolerance * (1 + np.abs(wanted))).all():
            raise RuntimeError(f"{case.operator}: {name} computes something else")
