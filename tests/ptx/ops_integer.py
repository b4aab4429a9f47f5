"""Integer arithmetic: add, sub, mul, mad, div, rem, min, max, abs, neg, sad, dp4a, dp2a. All of it wraps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import ops_float
from .decode import Decoder, Lanes, Machine, Step, op
from .dtypes import TYPES, Type, wider
from .memory import Fault

_BINARY = {"add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum}


@op("add", "sub", "min", "max")
def binary(d: Decoder) -> Step:
    t = d.type()
    if t.kind == "f":
        return ops_float.binary(d, t)
    return _map(d, t, _BINARY[d.name], 2)


@op("abs", "neg")
def unary(d: Decoder) -> Step:
    t = d.type()
    if t.kind == "f":
        return ops_float.sign(d, t)
    # |INT_MIN| wraps to itself, in NumPy as on the GPU
    return _map(d, t, np.abs if d.name == "abs" else np.negative, 1)


@op("mul", "mad")
def multiply(d: Decoder) -> Step:
    t = d.type()
    if t.kind == "f":
        # mad.rn.f32 is fma.rn.f32 by definition
        return ops_float.binary(d, t) if d.name == "mul" else ops_float.fused(d, t)
    part = d.need("lo", "hi", "wide")
    if part == "wide" and t.bits == 64:
        raise d.unsupported("mul.wide of 64-bit values")
    product = {"lo": lambda t: np.multiply, "hi": _high_product, "wide": _wide_product}[part](t)
    result = wider(t) if part == "wide" else t
    a, b, put = d.source(1, t), d.source(2, t), d.target(0, result)
    if d.name == "mul":
        d.operand_count(3)
        return lambda machine, at: put(machine, at, product(a(machine, at), b(machine, at)))
    d.operand_count(4)
    c = d.source(3, result)
    return lambda machine, at: put(machine, at, product(a(machine, at), b(machine, at)) + c(machine, at))


def _wide_product(t: Type) -> Callable:
    dtype = wider(t).dtype
    return lambda a, b: a.astype(dtype) * b.astype(dtype)


def _high_product(t: Type) -> Callable:
    if t.bits == 64:
        return lambda a, b: _high64(a, b, t)
    product, bits = _wide_product(t), wider(t).dtype.type(t.bits)
    return lambda a, b: (product(a, b) >> bits).astype(t.dtype)


def _high64(a: np.ndarray, b: np.ndarray, t: Type) -> np.ndarray:
    """The upper 64 bits of a 64 x 64 bit product, from four 32 x 32 bit ones."""
    low = np.uint64(0xFFFFFFFF)
    s = np.uint64(32)
    x, y = a.view(np.uint64), b.view(np.uint64)
    x0, x1, y0, y1 = x & low, x >> s, y & low, y >> s
    middle = x1 * y0 + (x0 * y0 >> s)  # < 2^64: (2^32-1)^2 + 2^32 - 1
    carried = x0 * y1 + (middle & low)
    high = x1 * y1 + (middle >> s) + (carried >> s)
    if t.kind == "s":  # a negative factor stands for itself plus 2^64: take the other one off
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(t.dtype)


@op("div", "rem")
def divide(d: Decoder) -> Step:
    t = d.type()
    if t.kind == "f":
        if d.name == "rem":
            raise d.unsupported("rem of floats")
        return ops_float.divide(d, t)
    remainder = d.name == "rem"

    def quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = np.broadcast_arrays(np.atleast_1d(a), b)
        if (b == 0).any():
            # "unspecified, machine-specific value" (PTX ISA)
            raise Fault("division by zero", int(np.argmax(b == 0)))
        if t.kind != "s":
            return a % b if remainder else a // b
        # Truncates toward zero, where NumPy floors. Unsigned, so that |INT_MIN| is itself.
        wide = f"u{t.bytes}"
        size_a, size_b = np.abs(a).view(wide), np.abs(b).view(wide)
        if remainder:
            return np.where(a < 0, -(size_a % size_b).view(t.dtype), (size_a % size_b).view(t.dtype))
        size = (size_a // size_b).view(t.dtype)
        return np.where((a < 0) != (b < 0), -size, size)

    return _map(d, t, quotient, 2)


@op("sad")
def sum_of_absolute_differences(d: Decoder) -> Step:
    t = d.type()
    return _map(d, t, lambda a, b, c: c + np.where(a < b, b - a, a - b).astype(t.dtype), 3)


@op("dp4a", "dp2a")
def dot_of_bytes(d: Decoder) -> Step:
    """Of four bytes of each; or of the two halves of a and two bytes of b."""
    types = [d.type(), d.type()][::-1]
    if any(t.name not in ("u32", "s32") for t in types):
        raise d.unsupported(f"{d.name} of these types")
    result = TYPES["s32" if "s" in (types[0].kind, types[1].kind) else "u32"]
    parts = slice(None) if d.name == "dp4a" else {"lo": slice(2), "hi": slice(2, 4)}[d.need("lo", "hi")]
    size = 1 if d.name == "dp4a" else 2  # of the parts of a
    a, b, c, put = d.source(1, types[0]), d.source(2, types[1]), d.source(3, result), d.target(0, result)

    def split(words: np.ndarray, t: Type, size: int) -> np.ndarray:
        values = np.atleast_1d(words).view(f"{'i' if t.kind == 's' else 'u'}{size}").reshape(-1, 4 // size)
        return values.astype(np.int64)

    def step(machine: Machine, at: Lanes) -> None:
        products = split(a(machine, at), types[0], size) * split(b(machine, at), types[1], 1)[:, parts]
        put(machine, at, (products.sum(axis=1) + c(machine, at)).astype(result.dtype))

    return step


def _map(d: Decoder, t: Type, function: Callable, sources: int) -> Step:
    """d = function(a, ...), all of one type."""
    d.operand_count(sources + 1)
    reads, put = [d.source(i + 1, t) for i in range(sources)], d.target(0, t)
    return lambda machine, at: put(machine, at, function(*(read(machine, at) for read in reads)))
