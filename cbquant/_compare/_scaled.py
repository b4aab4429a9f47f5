"""Sums of squares of numbers whose squares are beyond the range of float64, or below it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Squares of numbers between these powers of two, and sums of many, keep all their bits.
_SAFE = 400


class Scaled(NamedTuple):
    """``value * 2 ** exponent``, of a value from 0 up or not.

    >>> tiny = Scaled(1.0, -2000)
    >>> tiny.plus(tiny), tiny.root(), Scaled(1.0, 4).plus(Scaled(1.0, 0))
    (Scaled(value=2.0, exponent=-2000), Scaled(value=1.0, exponent=-1000), Scaled(value=1.0625, exponent=4))
    """

    value: float = 0.0
    exponent: int = 0

    def plus(self, other: Scaled) -> Scaled:
        """The sum, at the larger exponent."""
        if other.value == 0 or self.value == 0:
            return self if other.value == 0 else other
        low, high = sorted((self, other), key=lambda scaled: scaled.exponent)
        return Scaled(high.value + math.ldexp(low.value, low.exponent - high.exponent), high.exponent)

    def root(self) -> Scaled:
        """The square root, of an even exponent."""
        return Scaled(math.sqrt(self.value), self.exponent // 2)

    def over(self, other: Scaled) -> float:
        """The quotient as a plain number; that of 0 is 0, that by 0 infinite."""
        if self.value == 0:
            return 0.0
        return Scaled(self.value / other.value, self.exponent - other.exponent).plain() if other.value else math.inf

    def plain(self) -> float:
        """The number; infinite where it is beyond float64."""
        try:
            return math.ldexp(self.value, self.exponent)
        except OverflowError:
            return math.copysign(math.inf, self.value)

    def rank(self) -> tuple[float, float]:
        """What numbers from 0 up are ordered by."""
        fraction, exponent = math.frexp(self.value)
        return (exponent + self.exponent, fraction) if fraction else (-math.inf, 0.0)


def largest(x: NDArray[np.float64]) -> float:
    """The largest magnitude; NaN where there is one."""
    return float(np.maximum(x.max(), -x.min()))


def scale_of(magnitude: float) -> int:
    """The power of two to divide numbers by, the largest of them so large, before they are squared: most often 0.

    >>> scale_of(1.5), scale_of(2.0**-1000), scale_of(0.0)
    (0, -999, 0)
    """
    if magnitude == 0 or not math.isfinite(magnitude):
        return 0
    exponent = math.frexp(magnitude)[1]
    return exponent if abs(exponent) > _SAFE else 0
