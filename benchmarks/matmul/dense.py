"""NumPy's product with weights that are float32 already: sgemm of its BLAS."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np

from benchmarks.matmul.weights import TOLERANCES, Dense, Floats, Operand
from benchmarks.timing import Call

# OpenBLAS as NumPy's wheels carry it, and as others build it.
_SETTERS = tuple(
    f"{prefix}openblas_set_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "", "_64_")
)


@functools.cache
def thread_setter() -> Callable[[int], object] | None:
    """The function that sets the number of threads of the BLAS in NumPy's wheel; None where there is none."""
    try:
        files = importlib.metadata.files("numpy") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for path in (file.locate() for file in files if "openblas" in file.name):
        library = ctypes.CDLL(str(path))
        for name in _SETTERS:
            if hasattr(library, name):
                setter = getattr(library, name)
                setter.argtypes, setter.restype = (ctypes.c_int,), None
                return setter  # type: ignore[no-any-return]
    return None


def load(weights: Dense, stack: ExitStack) -> list[Operand]:
    """float32 weights, with as many threads as are asked for."""
    set_threads = thread_setter()
    if set_threads is None:
        return []

    def calls(x: Floats, out: Floats, threads: int) -> list[Call]:
        def multiply(copy: Floats) -> Call:
            def call() -> None:
                set_threads(threads)
                np.matmul(x, copy.T, out=out)

            return call

        return [multiply(copy) for copy in weights.cold.copies]

    return [Operand("sgemm", calls, weights.cold.turns, TOLERANCES["f32"])]
