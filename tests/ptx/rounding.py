"""Floating point with one rounding: what NumPy lacks for fma, bf16 and directed rounding.

The trick is *rounding to odd*: compute in f64, and where the result is inexact take, of its two
neighbours, the one with an odd last bit. Rounded once more to a format of at most 53 - 2 bits, such a value
gives what the exact one would have given, in every rounding mode (Boldo and Melquiond, "Emulation of FMA and
correctly rounded sums: proved algorithms using rounding to odd", 2008). f32, f16 and bf16 are narrow enough.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

# "NaN payloads are not supported": what the GPU's arithmetic and conversions give in these formats.
CANONICAL_NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF}


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    """uint16 bits of bf16 -> float32, exact."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(values: np.ndarray, mode: str = "rn") -> np.ndarray:
    """float32 -> uint16 bits of bf16, to nearest even (`rn`) or toward zero (`rz`)."""
    values = np.asarray(values, np.float32)
    bits = values.view(np.uint32)
    if mode == "rn":
        bits = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    high = (bits >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(CANONICAL_NAN["bf16"]), high)


def canonical(values: np.ndarray, fmt: str) -> np.ndarray:
    """Every NaN of f32 or f16 values replaced by the canonical one; f64 keeps its NaNs."""
    if fmt == "f64":
        return values
    nan = np.isnan(values)
    if not nan.any():
        return values
    values = np.array(values)
    values.view(f"u{values.itemsize}")[nan] = CANONICAL_NAN[fmt]
    return values


def _to_odd(rounded: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """A rounded value and where the exact one lies from it (its sign; 0: it is exact) -> rounded to odd."""
    bits = rounded.view(f"u{rounded.itemsize}")
    even = bits & bits.dtype.type(1) == 0
    toward = np.copysign(rounded.dtype.type(np.inf), direction)
    return np.where((direction != 0) & even, np.nextafter(rounded, toward), rounded)


def sum_to_odd(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b in f64, rounded to odd. Both must be far from f64's overflow, or infinite or NaN."""
    total = a + b
    # Knuth's two-sum: total + error is a + b exactly
    part = total - a
    error = (a - (total - part)) + (b - part)
    error = np.where(np.isfinite(total), error, 0.0)
    return _to_odd(np.asarray(total), error)


def narrow(values: np.ndarray, fmt: str, mode: str = "rn") -> np.ndarray:
    """f64 values, exact or rounded to odd -> `f32`, `f16` (as floats) or `bf16` (as uint16 bits).

    Modes: rn, rz, rm (toward -inf), rp (toward +inf); bf16: rn and rz.
    """
    values = np.asarray(values, np.float64)
    if fmt == "bf16":
        near = values.astype(np.float32)
        direction = np.sign(np.where(np.isfinite(values), values - near.astype(np.float64), 0.0))
        return f32_to_bf16(_to_odd(near, direction.astype(np.float32)), mode)
    dtype = np.dtype({"f32": np.float32, "f16": np.float16}[fmt])
    near = values.astype(dtype)
    if mode != "rn":
        back, inf = near.astype(np.float64), dtype.type(np.inf)
        wrong = {"rz": np.abs(back) > np.abs(values), "rm": back > values, "rp": back < values}[mode]
        toward = {"rz": dtype.type(0), "rm": -inf, "rp": inf}[mode]
        near = np.where(wrong, np.nextafter(near, toward), near)
    return canonical(near, fmt)


def widen(values: np.ndarray, fmt: str) -> np.ndarray:
    """f32 or f16 floats, or uint16 bits of bf16 -> f64, exact."""
    return (bf16_to_f32(values) if fmt == "bf16" else np.asarray(values)).astype(np.float64)


def fma_f64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a b + c in f64 with one rounding, by exact fractions: slow, and rare in kernels."""
    a, b, c = np.broadcast_arrays(np.atleast_1d(a), b, c)
    plain = a * b + c  # right wherever infinities, NaNs or the sign of an exact zero decide
    found = np.array(plain)
    for i in np.flatnonzero(np.isfinite(a) & np.isfinite(b) & np.isfinite(c)):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        if exact:
            try:
                found[i] = exact.numerator / exact.denominator  # int / int rounds correctly
            except OverflowError:
                found[i] = np.inf if exact > 0 else -np.inf
        elif a[i] and b[i]:
            found[i] = 0.0  # an exact cancellation is +0, also where the product alone underflowed
    return found
