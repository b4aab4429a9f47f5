"""Floats at which an encoder of codes can go wrong, and the types of ml_dtypes that are oracles."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from cbquant.reference import codecs

#: ml_dtypes' own types, right for finite float32: it inverts the sign of NaN in the first three, and rounds float64
#: twice.
ML_DTYPES = {
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2": ml_dtypes.float8_e5m2,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e8m0": ml_dtypes.float8_e8m0fnu,
}
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 1.1754942e-38, 3.4028235e38, -3.4028235e38]


def midpoints(kind: str) -> NDArray[np.float64]:
    """Between neighbours of a kind, and between its largest value and what the next would be."""
    ascending = codecs.magnitudes(kind)
    following = np.append(ascending[1:], 2 * ascending[-1] - ascending[-2])
    return (ascending + following) / 2


def neighbours(x: NDArray[Any]) -> NDArray[Any]:
    """x and the numbers of its type just below and just above."""
    return np.concatenate([x, np.nextafter(x, x.dtype.type(0)), np.nextafter(x, x.dtype.type(np.inf))])


def hard(kind: str, dtype: Any = np.float32) -> NDArray[Any]:
    """Midpoints, values, their neighbours and their negatives, and numbers without a code of their own."""
    exact = np.concatenate([midpoints(kind), codecs.magnitudes(kind)]).astype(dtype)
    near = neighbours(exact)
    return np.concatenate([near, -near, np.array(SPECIAL).astype(dtype)])


def random_finite(n: int, seed: int = 0) -> NDArray[np.float32]:
    """Any bits, and numbers about 1: random bits alone are mostly far too large or too small for a code."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**32, n // 2, dtype=np.uint32).view(np.float32)
    spread = rng.normal(size=n - n // 2) * np.exp2(rng.uniform(-20, 18, n - n // 2))
    return np.concatenate([bits[np.isfinite(bits)], spread.astype(np.float32)])


def exact_code(kind: str, x: float) -> int:
    """The code of a finite number in fractions, without saturation at work: of the nearest values the even code."""
    ascending = [Fraction(value) for value in codecs.magnitudes(kind)]
    size = abs(Fraction(x))
    distances = [abs(size - value) for value in ascending]
    best = min(distances)
    nearest = [code for code, distance in enumerate(distances) if distance == best]
    code = next((code for code in nearest if code % 2 == 0), nearest[0])
    if kind == "mxint8":
        return -code % 256 if x < 0 else code
    f = codecs.FLOATS[kind]
    negative = np.signbit(x) and (code > 0 or f.has_negative_zero)
    return code + 2 ** (f.exponent_bits + f.mantissa_bits) * bool(negative)
