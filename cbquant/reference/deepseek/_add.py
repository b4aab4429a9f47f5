"""vector_add."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


def doubles(x: Any) -> Doubles:
    """Any real array as float64, which is exact for every float of up to 64 bits."""
    return np.asarray(x).astype(np.float64)


def vector_add(a: Any, b: Any) -> Doubles:
    """The sum of two arrays of one shape."""
    return doubles(a) + doubles(b)
