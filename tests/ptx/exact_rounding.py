"""Rounding by exact fractions: the reference for the interpreter's floating point, slow and plain."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

# name -> bits of precision, exponent of the smallest normal number, exponent of the largest
FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}


def round_exactly(x: Fraction, fmt: str, mode: str = "rn") -> float:
    """A fraction -> the value of a format, as a Python float. Modes rn, rz, rm, rp. A zero result is +0."""
    precision, smallest, largest = FORMATS[fmt]
    if x == 0:
        return 0.0
    exponent = max(_exponent(abs(x)), smallest)
    unit = Fraction(2) ** (exponent - precision + 1)
    whole = _to_integer(x / unit, mode)
    value = whole * unit
    top = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** largest
    if abs(value) > top:
        away = mode == "rn" or (mode == "rp" and x > 0) or (mode == "rm" and x < 0)
        return math.copysign(math.inf if away else float(top), x)
    return float(value) if value else math.copysign(0.0, x)


def _exponent(x: Fraction) -> int:
    """floor(log2(x))"""
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1


def _to_integer(x: Fraction, mode: str) -> int:
    if mode == "rn":
        return round(x)  # Python rounds halves to even
    return {"rz": math.trunc, "rm": math.floor, "rp": math.ceil}[mode](x)


def bits_of(values: list[float], fmt: str) -> np.ndarray:
    """Floats that a format holds exactly -> their bits."""
    if fmt == "bf16":
        return (np.array(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[fmt]
    return np.array(values, dtype).view(f"u{np.dtype(dtype).itemsize}")
