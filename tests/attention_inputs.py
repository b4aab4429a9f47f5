"""What the tests of attention and of the indexer share: arrays to begin with, and bounds."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

DTYPES: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
#: Of attention's results: |a - b| <= bound * (1 + |b|).
ATTENTION = {"float32": 1e-3, "float16": 3e-3, "bfloat16": 1.5e-2}
#: The same for sums of float32 that are not rounded further: what the kernels are held to where a result is float32.
EXACT_INPUTS = 2e-5


def drawn(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> NDArray[Any]:
    """Normally distributed numbers of that dtype."""
    rng = np.random.default_rng([seed, *shape])
    return rng.standard_normal(shape, np.float32).astype(DTYPES[dtype])


def error(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    """The largest |a - b| / (1 + |b|)."""
    difference = np.abs(actual.astype(np.float64) - expected)
    return float((difference / (1 + np.abs(expected))).max(initial=0))


def bits(array: NDArray[Any]) -> NDArray[Any]:
    """bfloat16 as uint16, which the core takes for it."""
    return array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array


def same_bits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
