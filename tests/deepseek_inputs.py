"""What the tests of cbquant.deepseek share: dtypes and their tolerances, arrays at odd strides, paths."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Array = NDArray[Any]

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
#: |a - b| <= tolerance * (1 + |b|), for what works element by element and for pooling.
TOLERANCES = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 5e-2}


def bits(array: Array) -> Array:
    """bfloat16 as uint16, as the C side takes it."""
    return array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array


def same_bits(a: Array, b: Array) -> bool:
    """Equal in dtype, shape and every bit."""
    word = {2: np.uint16, 4: np.uint32}[a.dtype.itemsize]
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a.view(word), b.view(word))


def assert_close(actual: Array, expected: Array, tolerance: float | None = None) -> None:
    """Within the tolerance of actual's dtype; infinities and NaN at the same places."""
    assert actual.shape == expected.shape
    tolerance = TOLERANCES[actual.dtype.name] if tolerance is None else tolerance
    got = actual.astype(np.float64)
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    infinite = np.isinf(got) | np.isinf(expected)
    assert np.array_equal(got[infinite], expected[infinite])
    known = np.isfinite(expected) & np.isfinite(got)
    error = np.abs(got - expected)[known] / (1 + np.abs(expected[known]))
    assert error.size == 0 or error.max() <= tolerance, f"{error.max()} > {tolerance}"


def draw(seed: int, shape: tuple[int, ...], dtype: Any = np.float32, scale: float = 1.0) -> Array:
    """Normally distributed numbers."""
    values = np.random.default_rng([seed, len(shape)]).standard_normal(shape) * scale
    return values.astype(DTYPES.get(dtype, dtype))


def strided(array: Array, steps: tuple[int, ...], fill: float = np.nan) -> Array:
    """The same values in a larger array, in every steps[i]-th place of axis i (from the end where negative); `fill` in
    the others."""
    sizes = [max(size * abs(step), 1) for size, step in zip(array.shape, steps, strict=True)]
    place = np.full(sizes, fill, np.float32).astype(array.dtype)
    view = place[tuple(slice(None, None, step) for step in steps)][tuple(slice(0, size) for size in array.shape)]
    view[...] = array
    return view


def order(array: Array, axes: tuple[int, ...]) -> Array:
    """The same values and shape, laid out in memory with `axes` from the outermost to the innermost."""
    place = np.ascontiguousarray(array.transpose(axes))
    return place.transpose(np.argsort(axes))


#: Names of dtypes, and steps for `strided` that leave the last axis contiguous or do not.
dtypes = st.sampled_from(sorted(DTYPES))
steps = st.sampled_from([1, 1, 2, 3, -1, -2])
