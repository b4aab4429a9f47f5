"""cvt: between all integer and floating-point types; selp, set, setp, slct: values from comparisons."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .decode import Decoder, Lanes, Machine, Step, op
from .dtypes import TYPES, Type
from .model import Pair
from .ops_float import comparison, flush, saturate
from .rounding import canonical, f32_to_bf16, narrow, widen

_PRED = TYPES["pred"]
_TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@op("cvt")
def convert(d: Decoder) -> Step:
    source, result = d.type(), d.type()
    if result.packed or source.packed:
        return _convert_pair(d, result, source)
    d.operand_count(2)
    mode = d.choice("rn", "rz", "rm", "rp", *_TO_INTEGER)
    ftz, sat = d.flag("ftz"), d.flag("sat")
    if result.is_integer and source.is_integer:
        function = _integer_to_integer(result, source, sat)
    elif result.is_integer:
        function = _float_to_integer(d, result, source, mode)
    elif source.is_integer:
        function = _integer_to_float(d, result, source, mode)
    else:
        function = _float_to_float(d, result, source, mode)
    if sat and result.kind == "f":
        function = _then(function, lambda v: saturate(v, result.name))
    if ftz:
        function = _flushed(function, result, source)
    read, put = d.source(1, source, relaxed=True), d.target(0, result, relaxed=True)
    return lambda machine, at: put(machine, at, np.asarray(function(read(machine, at)), result.dtype))


def _then(first: Callable, second: Callable) -> Callable:
    return lambda values: second(first(values))


def _flushed(function: Callable, result: Type, source: Type) -> Callable:
    """.ftz: f32 denormals, in and out, are zeros."""

    def flushed(values: np.ndarray) -> np.ndarray:
        values = function(flush(values, "f32") if source.name == "f32" else values)
        return flush(values, "f32") if result.name == "f32" else values

    return flushed


def _integer_to_integer(result: Type, source: Type, sat: bool) -> Callable:
    """Truncates, or zero- or sign-extends; `.sat` clamps instead."""
    if not sat:
        return lambda values: values.astype(result.dtype)
    to, of = np.iinfo(result.dtype), np.iinfo(source.dtype)
    low, high = max(to.min, of.min), min(to.max, of.max)
    return lambda values: np.clip(values, low, high).astype(result.dtype)


def _float_to_integer(d: Decoder, result: Type, source: Type, mode: str | None) -> Callable:
    """Rounds, then clamps to the range of the result, always."""
    if mode not in _TO_INTEGER:
        raise d.unsupported(f"'{d.instruction.opcode}': float to integer needs .rni, .rzi, .rmi or .rpi")
    info = np.iinfo(result.dtype)
    # 0 "if source is not .f64 and destination is not .s64, .u64"; else only the top bit set (PTX ISA, cvt)
    special = source.name == "f64" or result.bits == 64
    for_nan = result.dtype.type(0)
    if special:
        for_nan = np.uint64(1 << result.bits - 1).astype(f"u{result.bytes}").view(result.dtype)
    above = float(1 << (result.bits - (result.kind == "s")))  # the first value that is too large: exact

    def function(values: np.ndarray) -> np.ndarray:
        whole = _TO_INTEGER[mode](widen(values, source.name))
        inside = (whole < above) & (whole >= float(info.min))
        found = np.where(inside, whole, 0.0).astype(result.dtype)
        found = np.where(whole >= above, result.dtype.type(info.max), found)
        found = np.where(whole < float(info.min), result.dtype.type(info.min), found)
        return np.where(np.isnan(whole), for_nan, found)

    return function


def _integer_to_float(d: Decoder, result: Type, source: Type, mode: str | None) -> Callable:
    mode = mode or ("rn" if result.name == "f64" and source.bits <= 32 else None)
    if mode == "rn" and result.name in ("f32", "f64"):
        return lambda values: values.astype(result.dtype)
    # f64 holds 32-bit integers exactly
    if mode not in ("rn", "rz", "rm", "rp") or source.bits > 32 or result.name == "f64":
        raise d.unsupported(f"'{d.instruction.opcode}'")
    return lambda values: narrow(values.astype(np.float64), result.name, mode)


def _float_to_float(d: Decoder, result: Type, source: Type, mode: str | None) -> Callable:
    if mode in _TO_INTEGER:
        if result is not source or result.name == "bf16":
            raise d.unsupported(f"'{d.instruction.opcode}': rounding to integers while converting")
        return lambda values: canonical(_TO_INTEGER[mode](values), result.name)
    narrows = result.bits < source.bits or (result.bits == source.bits and result is not source)
    if not narrows:
        if mode not in (None, "rn"):
            raise d.unsupported(f"'{d.instruction.opcode}': rounding where nothing is lost")
        return lambda values: _exact(widen(values, source.name), result)
    if mode is None or (result.name == "bf16" and mode not in ("rn", "rz")):
        raise d.unsupported(f"'{d.instruction.opcode}': this rounding")
    return lambda values: narrow(widen(values, source.name), result.name, mode)


def _exact(values: np.ndarray, result: Type) -> np.ndarray:
    if result.name == "bf16":
        return f32_to_bf16(values)
    return canonical(values.astype(result.dtype), result.name)


def _convert_pair(d: Decoder, result: Type, source: Type) -> Step:
    """cvt.rn.bf16x2.f32 d, a, b: a becomes the upper half."""
    if source.name != "f32" or result.packed is None:
        raise d.unsupported(f"'{d.instruction.opcode}'")
    d.operand_count(3)
    mode = d.need("rn", "rz")
    a, b, put = d.source(1, source), d.source(2, source), d.target(0, TYPES["b32"])

    def half(values: np.ndarray) -> np.ndarray:
        bits = narrow(widen(values, "f32"), result.packed, mode)
        return bits.view(np.uint16).astype(np.uint32)

    def step(machine: Machine, at: Lanes) -> None:
        put(machine, at, half(a(machine, at)) << np.uint32(16) | half(b(machine, at)))

    return step


def _combined(d: Decoder, sources: int) -> tuple[Callable, Callable]:
    """setp and set: the comparison, and what joins it with a third predicate.

    Returns compare(machine, lanes) -> bool values, and join(machine, lanes, values).
    """
    t = d.type()
    name, ftz = d.left.pop(0), d.flag("ftz")
    joined = d.choice("and", "or", "xor")
    d.operand_count(sources + 1 if joined is None else sources + 2)
    a, b, function = d.source(1, t), d.source(2, t), comparison(d, name, t)

    def compare(machine: Machine, at: Lanes) -> np.ndarray:
        x, y = a(machine, at), b(machine, at)
        return function(flush(x, t.name), flush(y, t.name)) if ftz else function(x, y)

    if joined is None:
        return compare, lambda machine, at, values: np.asarray(values)
    other = d.predicate(sources + 1)
    boolean = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[joined]
    return compare, lambda machine, at, values: boolean(values, other(machine, at))


@op("setp")
def set_predicate(d: Decoder) -> Step:
    """p|q: the comparison and its complement, each joined with the third predicate."""
    compare, join = _combined(d, 2)
    results = d.operands[0]
    pair = isinstance(results, Pair)
    put = d.target(results.first if pair else results, _PRED)
    put_not = d.target(results.second, _PRED) if pair else None

    def step(machine: Machine, at: Lanes) -> None:
        holds = compare(machine, at)
        first = join(machine, at, holds)
        if put_not is not None:
            second = join(machine, at, ~np.asarray(holds))  # before p is written: c may be the same register
            put_not(machine, at, second)
        put(machine, at, first)

    return step


@op("set")
def set_value(d: Decoder) -> Step:
    """All ones or 1.0 where the comparison holds, else 0."""
    result = TYPES.get(d.left[-2]) if len(d.left) > 2 else None
    if result is None or result.name not in ("u32", "s32", "f32"):
        raise d.unsupported(f"'{d.instruction.opcode}'")
    del d.left[-2]
    compare, join = _combined(d, 2)
    true = {"f32": np.float32(1), "s32": np.int32(-1), "u32": np.uint32(0xFFFFFFFF)}[result.name]
    put = d.target(0, result)
    return lambda machine, at: put(
        machine, at, np.where(join(machine, at, compare(machine, at)), true, result.dtype.type(0))
    )


@op("selp")
def select(d: Decoder) -> Step:
    t = d.type()
    a, b, condition, put = d.source(1, t), d.source(2, t), d.predicate(3), d.target(0, t)
    return lambda machine, at: put(machine, at, np.where(condition(machine, at), a(machine, at), b(machine, at)))


@op("slct")
def select_by_sign(d: Decoder) -> Step:
    """a where c >= 0, else b; a NaN is not >= 0."""
    by, ftz = d.type(), d.flag("ftz")
    if by.name not in ("s32", "f32") or ftz:
        raise d.unsupported(f"'{d.instruction.opcode}'")
    t = d.type()
    a, b, c, put = d.source(1, t), d.source(2, t), d.source(3, by), d.target(0, t)
    return lambda machine, at: put(machine, at, np.where(c(machine, at) >= 0, a(machine, at), b(machine, at)))
