"""Floating-point arithmetic. Denormals are kept unless `.ftz` says otherwise; NaNs come out canonical."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .decode import Decoder, Lanes, Machine, Step, op
from .dtypes import TYPES, Type
from .rounding import canonical, fma_f64, narrow, sum_to_odd, widen


class _Float:
    """The modifiers and operands of an instruction on one floating-point type or a packed pair of it."""

    def __init__(self, d: Decoder, t: Type, sources: int, modes: tuple[str, ...] = ("rn", "rz")) -> None:
        self.type = t
        self.fmt = t.packed or t.name
        self.mode = d.choice(*modes) or "rn"
        self.flush = d.flag("ftz")
        self.saturate = d.flag("sat")
        d.operand_count(sources + 1)
        self.reads = [d.source(i + 1, t) for i in range(sources)]
        self.put = d.target(0, t)

    def step(self, function: Callable[..., np.ndarray]) -> Step:
        """d = function(a, ...) on values of the element type (bf16: its bits), which rounds its result."""

        def step(machine: Machine, at: Lanes) -> None:
            values = [read(machine, at) for read in self.reads]
            if self.type.packed is None:
                self.put(machine, at, self.one(function, values))
                return
            halves = [self.one(function, [self._half(v, k) for v in values]) for k in (0, 1)]
            low, high = (h.view(np.uint16).astype(np.uint32) for h in halves)
            self.put(machine, at, low | high << np.uint32(16))

        return step

    def _half(self, words: np.ndarray, k: int) -> np.ndarray:
        bits = (np.asarray(words) >> np.uint32(16 * k)).astype(np.uint16)
        return bits if self.fmt == "bf16" else bits.view(np.float16)

    def one(self, function: Callable[..., np.ndarray], values: list[np.ndarray]) -> np.ndarray:
        if self.flush:
            values = [flush(v, self.fmt) for v in values]
        result = np.asarray(function(*values))
        if self.flush:
            result = flush(result, self.fmt)
        if self.saturate:
            result = saturate(result, self.fmt)
        return canonical(result, self.fmt) if self.fmt != "bf16" else result


def flush(values: np.ndarray, fmt: str) -> np.ndarray:
    """Denormals to zeros of their sign. `.ftz` on f64 is not PTX; bf16 has f32's exponents."""
    smallest = {"f32": 2.0**-126, "f16": 2.0**-14}.get(fmt)
    if smallest is None:
        raise NotImplementedError(f".ftz on {fmt}")
    values = np.asarray(values)
    return np.where(np.abs(values) < smallest, np.copysign(values.dtype.type(0), values), values)


def saturate(values: np.ndarray, fmt: str) -> np.ndarray:
    """Clamp to [0, 1]; NaN becomes +0."""
    if fmt == "bf16":
        raise NotImplementedError(".sat on bf16")
    zero, one = values.dtype.type(0), values.dtype.type(1)
    return np.where(values > zero, np.minimum(values, one), zero)


def binary(d: Decoder, t: Type) -> Step:
    """add, sub, mul, min, max"""
    if d.name in ("min", "max"):
        return _extreme(d, t)
    f = _Float(d, t, 2)
    if t.name in ("f32", "f64") and f.mode == "rn":
        plain = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[d.name]
        return f.step(plain)
    if t.name == "f64":
        raise d.unsupported(f"'{d.instruction.opcode}': .{f.mode} on f64")

    def function(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        x, y = widen(a, f.fmt), widen(b, f.fmt)
        if d.name == "mul":
            return narrow(x * y, f.fmt, f.mode)  # exact in f64: 24 + 24 bits
        return narrow(sum_to_odd(x, y if d.name == "add" else -y), f.fmt, f.mode)

    return f.step(function)


@op("fma")
def fma(d: Decoder) -> Step:
    return fused(d, d.type())


def fused(d: Decoder, t: Type) -> Step:
    """a b + c with one rounding."""
    f = _Float(d, t, 3)
    if t.name == "f64":
        if f.mode != "rn":
            raise d.unsupported(f"'{d.instruction.opcode}': .{f.mode} on f64")
        return f.step(fma_f64)

    def function(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        # The product of two values of at most 24 bits is exact in f64, which has the exponents too.
        return narrow(sum_to_odd(widen(a, f.fmt) * widen(b, f.fmt), widen(c, f.fmt)), f.fmt, f.mode)

    return f.step(function)


def _extreme(d: Decoder, t: Type) -> Step:
    """A NaN loses against a number unless `.NaN`; -0 is less than +0."""
    if t.name not in ("f32", "f64"):
        raise d.unsupported(f"{d.name} of .{t.name}")
    propagate, smallest = d.flag("NaN"), d.name == "min"
    pick = {
        (True, True): np.minimum,
        (True, False): np.fmin,
        (False, True): np.maximum,
        (False, False): np.fmax,
    }[smallest, propagate]
    bits = np.bitwise_or if smallest else np.bitwise_and
    unsigned = f"u{t.bytes}"

    def function(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        zeros = bits(a.view(unsigned), b.view(unsigned)).view(t.dtype)  # of zeros, the sign bit is left
        return np.where((a == 0) & (b == 0), zeros, pick(a, b))

    return _Float(d, t, 2).step(function)


def sign(d: Decoder, t: Type) -> Step:
    """abs and neg touch the sign bit only, whatever the value."""
    if d.flag("ftz"):
        raise d.unsupported(f"'{d.instruction.opcode}': .ftz")
    bits = TYPES[f"b{t.bits}"]
    top = sum(1 << b for b in ((15, 31) if t.packed else (t.bits - 1,)))
    a, put = d.source(1, bits), d.target(0, bits)
    if d.name == "neg":
        flip = bits.dtype.type(top)
        return lambda machine, at: put(machine, at, a(machine, at) ^ flip)
    keep = bits.dtype.type((1 << t.bits) - 1 - top)
    return lambda machine, at: put(machine, at, a(machine, at) & keep)


@op("copysign")
def copy_sign(d: Decoder) -> Step:
    """d = |b| with the sign of a: the operands are the other way round than in C."""
    t = d.type()
    a, b, put = d.source(1, t), d.source(2, t), d.target(0, t)
    return lambda machine, at: put(machine, at, np.copysign(b(machine, at), a(machine, at)))


def divide(d: Decoder, t: Type) -> Step:
    _need_exact(d, t)
    return _Float(d, t, 2, ("rn",)).step(np.divide)


@op("rcp", "sqrt")
def root(d: Decoder) -> Step:
    t = d.type()
    _need_exact(d, t)
    function = np.sqrt if d.name == "sqrt" else lambda a: t.dtype.type(1) / a
    return _Float(d, t, 1, ("rn",)).step(function)


def _need_exact(d: Decoder, t: Type) -> None:
    """.approx and .full name no result, only an error bound."""
    if "rn" not in d.left or t.name not in ("f32", "f64"):
        raise d.unsupported(f"'{d.instruction.opcode}': only .rn of f32 and f64 has a defined result")


_COMPARE = {"eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def comparison(d: Decoder, name: str, t: Type) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The function of setp and set: `ne`, `ltu`, `num`, ... on values of one type, integers included."""
    if t.kind != "f":
        if name == "ne":
            return np.not_equal
        if name in _UNSIGNED and t.kind in "ub":
            return _COMPARE[_UNSIGNED[name]]
        if name in _COMPARE and (t.kind != "b" or name == "eq"):
            return _COMPARE[name]
        raise d.unsupported(f"comparison .{name} of .{t.name}")
    if t.name not in ("f16", "f32", "f64"):
        raise d.unsupported(f"comparison of .{t.name}")
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if name == "ne":  # ordered: false for NaN, unlike NumPy's
        return lambda a, b: (a < b) | (a > b)
    if name == "neu":
        return np.not_equal
    if name in _COMPARE:
        return _COMPARE[name]
    if name[:-1] in _COMPARE and name[-1] == "u":
        ordered = _COMPARE[name[:-1]]
        return lambda a, b: ordered(a, b) | np.isnan(a) | np.isnan(b)
    raise d.unsupported(f"comparison .{name} of .{t.name}")
