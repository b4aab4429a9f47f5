"""Floating-point instructions against exact fractions: one rounding, denormals kept, NaNs canonical."""

from __future__ import annotations

import itertools
import math
import operator
from fractions import Fraction

import numpy as np
import pytest

from .exact_rounding import FORMATS, bits_of, round_exactly
from .rounding import bf16_to_f32
from .snippet import evaluate

RNG = np.random.default_rng(2)
_START = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def _same_numbers_whichever_tests_run():
    RNG.bit_generator.state = _START


F32 = np.float32
NAN32 = 0x7FFFFFFF

# 0, 1, denormals, the ends of the range, and neighbours of 1
SPECIAL32 = np.array(
    [
        *(0, 0x00000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001),
        *(0x3F800000, 0x3F800001, 0x3F7FFFFF, 0x4B000000, 0x4B800001, 0x33800000),
    ],
    np.uint32,
)
SPECIAL32 = np.concatenate([SPECIAL32, SPECIAL32 | np.uint32(1 << 31)]).view(F32)


def combinations(count: int, extra: int = 500) -> list[np.ndarray]:
    """All combinations of the special values, and random bits, and random values of like size."""
    columns = np.array(list(itertools.product(SPECIAL32.view(np.uint32), repeat=count)), np.uint32).T
    anything = RNG.integers(0, 1 << 32, (count, extra), np.uint32)
    near = RNG.uniform(0.5, 2, (count, extra)).astype(F32).view(np.uint32)
    return [np.ascontiguousarray(c) for c in np.concatenate([columns, anything, near], axis=1).view(F32)]


def same_bits(got: np.ndarray, want: np.ndarray) -> None:
    bits = [x.view(f"u{x.itemsize}") for x in (got, want)]
    wrong = np.flatnonzero(bits[0] != bits[1])
    assert not len(wrong), [(hex(bits[0][i]), hex(bits[1][i])) for i in wrong[:5]]


def reference(function, fmt: str, mode: str, *columns: np.ndarray) -> np.ndarray:
    """Bits of function(...) on fractions, rounded once; infinities, NaNs and signs of zeros from f64."""
    found = []
    with np.errstate(all="ignore"):
        columns = tuple(c.astype(np.float64) for c in columns)
    for row in zip(*columns, strict=True):
        with np.errstate(all="ignore"):
            plain = function(*row)
        if not all(map(math.isfinite, row)) or math.isnan(plain):
            found.append(float(plain))
            continue
        exact = function(*(Fraction(float(v)) for v in row))
        found.append(round_exactly(exact, fmt, mode) if exact else math.copysign(0.0, plain))
    nan = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": NAN32}[fmt]
    bits = bits_of(found, fmt)
    return np.where(np.isnan(found), bits.dtype.type(nan), bits)


@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_f32_arithmetic_rounds_once(name, mode):
    a, b = combinations(2)
    function = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}[name]
    got = evaluate(f"{name}.{mode}.f32 %d, %a, %b;", F32, a=a, b=b)
    same_bits(got.view(np.uint32), reference(function, "f32", mode, a, b))


def test_f32_division_root_reciprocal():
    a, b = combinations(2)
    keep = b != 0
    a, b = a[keep], b[keep]
    got = evaluate("div.rn.f32 %d, %a, %b;", F32, a=a, b=b)
    same_bits(got.view(np.uint32), reference(operator.truediv, "f32", "rn", a, b))
    got = evaluate("rcp.rn.f32 %d, %b;", F32, b=b)
    same_bits(got.view(np.uint32), reference(lambda y: 1 / y, "f32", "rn", b))
    # sqrt of f32 in f64 rounds to the right f32: 53 >= 2 * 24 + 2 bits
    positive = np.abs(a[np.isfinite(a)])
    want = np.sqrt(positive.astype(np.float64)).astype(F32)
    same_bits(evaluate("sqrt.rn.f32 %d, %a;", F32, a=positive), want)
    assert np.isinf(evaluate("div.rn.f32 %d, %a, 0f00000000;", F32, a=np.ones(1, F32))).all()


def test_fma_f32_where_f64_would_round_twice():
    # 4097^2 = 2^24 + 2^13 + 1 lies half way between two f32; c says which way, 2^-40 below f64's last bit.
    a = np.full(3, 4097, F32)
    c = np.array([2.0**-40, 0, -(2.0**-40)], F32)
    assert evaluate("fma.rn.f32 %d, %a, %a, %c;", F32, a=a, c=c).tolist() == [16785410, 16785408, 16785408]
    assert evaluate("fma.rz.f32 %d, %a, %a, %c;", F32, a=a, c=c).tolist() == [16785408] * 3


@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_fma_f32_rounds_once(mode):
    a, b, c = combinations(3)
    # And sums near ties: c just off half a unit in the last place of the product
    x, y = (RNG.uniform(1, 2, 2000).astype(F32) for _ in range(2))
    tiny = ((x.astype(np.float64) * y) * 2.0**-24).astype(F32) * RNG.choice([-1, 1], 2000).astype(F32)
    a, b, c = (np.concatenate(p) for p in ((a, x), (b, y), (c, tiny)))
    got = evaluate(f"fma.{mode}.f32 %d, %a, %b, %c;", F32, a=a, b=b, c=c)
    same_bits(got.view(np.uint32), reference(lambda p, q, r: p * q + r, "f32", mode, a, b, c))


def test_fma_f64_rounds_once():
    a, b, c = (RNG.uniform(1, 2, 300) for _ in range(3))
    c *= -RNG.choice([1, 2.0**-52, 2.0**-53], 300)
    got = evaluate("fma.rn.f64 %d, %a, %b, %c;", np.float64, a=a, b=b, c=c)
    want = [float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in zip(a, b, c, strict=True)]
    assert got.tolist() == want


def as_floats(bits: np.ndarray, fmt: str) -> np.ndarray:
    return bf16_to_f32(bits) if fmt == "bf16" else bits.view(np.float16)


@pytest.mark.parametrize("fmt", ["f16", "bf16"])
def test_half_precision_arithmetic_and_pairs(fmt):
    a, b, c = (RNG.integers(0, 1 << 16, 3000, np.uint16) for _ in range(3))
    cases = {
        "add.rn": operator.add,
        "sub.rn": operator.sub,
        "mul.rn": operator.mul,
        "fma.rn": lambda p, q, r: p * q + r,
    }
    for code, function in cases.items():
        inputs = {"a": a, "b": b} | ({"c": c} if code == "fma.rn" else {})
        want = reference(function, fmt, "rn", *(as_floats(v, fmt) for v in inputs.values()))
        operands = ", ".join(f"%{name}" for name in inputs)
        same_bits(evaluate(f"{code}.{fmt} %d, {operands};", np.uint16, **inputs), want)
        pairs = {name: v.view(np.uint32) for name, v in inputs.items()}
        same_bits(evaluate(f"{code}.{fmt}x2 %d, {operands};", np.uint32, **pairs), want.view(np.uint32))


def test_ftz_and_sat_only_where_written():
    denormal = np.array([1e-40, -1e-40, 1.0], F32)
    assert evaluate("add.f32 %d, %a, 0f00000000;", F32, a=denormal).tolist() == denormal.tolist()
    flushed = evaluate("add.ftz.f32 %d, %a, 0f80000000;", F32, a=denormal)
    same_bits(flushed, np.array([0.0, -0.0, 1.0], F32))
    halved = evaluate("mul.ftz.f32 %d, %a, 0f3F000000;", F32, a=np.array([2.0**-126, 2.0**-125], F32))
    assert halved.tolist() == [0, 2.0**-126]
    values = np.array([-1, 0.25, 2, np.nan, np.inf, -np.inf], F32)
    assert evaluate("add.sat.f32 %d, %a, 0f00000000;", F32, a=values).tolist() == [0, 0.25, 1, 0, 1, 0]


def test_min_max_of_nans_and_zeros():
    a, b = combinations(2)
    for name, better in (("min", operator.lt), ("max", operator.gt)):
        ignoring, propagating = [], []
        for x, y in zip(a.tolist(), b.tolist(), strict=True):
            if x == 0 and y == 0:
                negative = [math.copysign(1, v) < 0 for v in (x, y)]
                value = -0.0 if (any(negative) if name == "min" else all(negative)) else 0.0
            else:
                value = y if math.isnan(x) else x if math.isnan(y) or better(x, y) else y
            ignoring.append(value)
            propagating.append(math.nan if math.isnan(x) or math.isnan(y) else value)
        for code, want in ((f"{name}.f32", ignoring), (f"{name}.NaN.f32", propagating)):
            bits = np.where(np.isnan(want), np.uint32(NAN32), bits_of(want, "f32"))
            same_bits(evaluate(f"{code} %d, %a, %b;", F32, a=a, b=b).view(np.uint32), bits)


def test_signs_are_bits():
    bits = RNG.integers(0, 1 << 32, 100, np.uint32)
    a, b = bits.view(F32), bits[::-1].view(F32)
    same_bits(evaluate("neg.f32 %d, %a;", np.uint32, a=bits), bits ^ np.uint32(1 << 31))
    same_bits(evaluate("abs.f32 %d, %a;", np.uint32, a=bits), bits & np.uint32(0x7FFFFFFF))
    same_bits(evaluate("neg.bf16x2 %d, %a;", np.uint32, a=bits), bits ^ np.uint32(0x80008000))
    same_bits(evaluate("copysign.f32 %d, %a, %b;", F32, a=a, b=b), np.copysign(b, a))


COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


@pytest.mark.parametrize("fmt", ["f16", "f32", "f64"])
def test_setp_ordered_and_unordered(fmt):
    values = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-7], fmt.replace("f", "float"))
    a, b = np.array(list(itertools.product(values, repeat=2)), values.dtype).T
    nan = np.isnan(a) | np.isnan(b)
    expected = {name: f(a, b) & ~nan for name, f in COMPARISONS.items()}
    expected |= {f"{name}u": f(a, b) | nan for name, f in COMPARISONS.items()}
    expected |= {"num": ~nan, "nan": nan}
    for name, want in expected.items():
        code = f"setp.{name}.{fmt} %p1, %a, %b; selp.u32 %d, 7, 3, %p1;"
        got = evaluate(code, np.uint32, a=a, b=b)
        assert got.tolist() == np.where(want, 7, 3).tolist(), name


@pytest.mark.parametrize("t", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_setp_of_integers(t):
    dtype = np.dtype(f"{t[0].replace('s', 'i')}{int(t[1:]) // 8}")
    info = np.iinfo(dtype)
    a, b = np.array(list(itertools.product([0, 1, 2, info.max, info.min], repeat=2)), dtype).T
    names = dict(COMPARISONS)
    if t[0] == "u":
        unsigned = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
        names |= {new: COMPARISONS[old] for new, old in unsigned.items()}
    for name, function in names.items():
        code = f"setp.{name}.{t} %p1, %a, %b; selp.b32 %d, 1, 0, %p1;"
        assert evaluate(code, np.uint32, a=a, b=b).tolist() == function(a, b).tolist(), name


@pytest.mark.parametrize("boolean", ["and", "or", "xor"])
def test_setp_joins_both_destinations(boolean):
    a, b, c = np.array(list(itertools.product([1, 2], [1, 2], [0, 1])), np.uint32).T
    join = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[boolean]
    for other, third in (("%p3", c == 1), ("!%p3", c == 0)):
        code = f"""setp.eq.u32 %p3, %c, 1; setp.lt.{boolean}.u32 %p1|%p2, %a, %b, {other};
            selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 2, 0, %p2; or.b32 %d, %r1, %r2;"""
        want = join(a < b, third) * 1 + join(a >= b, third) * 2
        assert evaluate(code, np.uint32, a=a, b=b, c=c).tolist() == want.tolist()


def test_set_and_slct():
    a, b = np.array([1, 2, 3], np.int32), np.array([2, 2, 2], np.int32)
    assert evaluate("set.lt.u32.s32 %d, %a, %b;", np.uint32, a=a, b=b).tolist() == [0xFFFFFFFF, 0, 0]
    assert evaluate("set.ge.f32.s32 %d, %a, %b;", F32, a=a, b=b).tolist() == [0, 1, 1]
    c = np.array([-0.0, -1, np.nan], F32)
    assert evaluate("slct.s32.f32 %d, %a, %b, %c;", np.int32, a=a, b=b, c=c).tolist() == [1, 2, 2]
    assert evaluate("slct.s32.s32 %d, %a, %b, %c;", np.int32, a=a, b=b, c=b - 3).tolist() == [2, 2, 2]


def test_every_f16_to_f32_and_back():
    bits = np.arange(1 << 16, dtype=np.uint16)
    magnitude, exponent = bits & 0x3FF, (bits >> 10 & 31).astype(int)
    value = np.where(exponent == 0, magnitude * 2.0**-24, (1024 + magnitude) * 2.0 ** (exponent - 25))
    value = np.where(exponent == 31, np.where(magnitude == 0, np.inf, np.nan), value)
    value = np.where(bits >> 15, -value, value)
    want = np.where(np.isnan(value), np.uint32(NAN32), value.astype(F32).view(np.uint32))
    widened = evaluate("cvt.f32.f16 %d, %a;", F32, a=bits)
    same_bits(widened.view(np.uint32), want)
    back = evaluate("cvt.rn.f16.f32 %d, %a;", np.uint16, a=widened)
    same_bits(back, np.where(np.isnan(value), np.uint16(0x7FFF), bits))


def between(fmt: str) -> np.ndarray:
    """f32 values at, half way between, and one f32 beside the values of a narrower format."""
    bits = RNG.integers(0, 1 << 16, 500, np.uint16)
    ends = np.array([0, 1, 2, 0x3FF, 0x400, 0x7BFF, 0x7BFE, 0x7F7F, 0x007F], np.uint16)
    bits = np.concatenate([bits, ends])
    with np.errstate(all="ignore"):
        low, high = (as_floats(b, fmt).astype(np.float64) for b in (bits, bits + np.uint16(1)))
        half = ((low + high) / 2).astype(F32)
        around = [low.astype(F32), half, np.nextafter(half, F32(np.inf)), np.nextafter(half, F32(-np.inf))]
    beyond = np.array([65504, 65519.99, 65520, 65536, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan, 1e-45], F32)
    return np.concatenate([*around, beyond, -beyond])


@pytest.mark.parametrize(("fmt", "modes"), [("f16", ["rn", "rz", "rm", "rp"]), ("bf16", ["rn", "rz"])])
def test_narrowing_f32(fmt, modes):
    values = between(fmt)
    for mode in modes:
        want = reference(lambda x: x, fmt, mode, values)
        same_bits(evaluate(f"cvt.{mode}.{fmt}.f32 %d, %a;", np.uint16, a=values), want)
    for mode in ("rn", "rz"):
        single = evaluate(f"cvt.{mode}.{fmt}.f32 %d, %a;", np.uint16, a=values)
        pairs = evaluate(f"cvt.{mode}.{fmt}x2.f32 %d, %a, %b;", np.uint32, a=values, b=values[::-1])
        upper, lower = pairs >> 16, pairs & 0xFFFF  # the first source is the upper half
        assert upper.tolist() == single.tolist()
        assert lower.tolist() == single[::-1].tolist()


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_narrowing_f64(mode):
    with np.errstate(invalid="ignore"):
        values = np.concatenate([between("bf16").astype(np.float64), RNG.normal(size=500) * 2.0**-130])
        values = np.concatenate([values, values * (1 + 2.0**-52), 1 + (2 * np.arange(50) + 1) * 2.0**-25])
    same_bits(
        evaluate(f"cvt.{mode}.f32.f64 %d, %a;", F32, a=values).view(np.uint32),
        reference(lambda x: x, "f32", mode, values),
    )
    same_bits(
        evaluate(f"cvt.{mode}.f16.f64 %d, %a;", np.uint16, a=values),
        reference(lambda x: x, "f16", mode, values),
    )


def test_bf16_to_f32_is_a_shift():
    bits = np.arange(1 << 16, dtype=np.uint16)
    got = evaluate("cvt.f32.bf16 %d, %a;", np.uint32, a=bits)
    want = bits.astype(np.uint32) << 16
    same_bits(got, np.where(np.isnan(want.view(F32)), np.uint32(NAN32), want))


ROUNDINGS = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
@pytest.mark.parametrize("result", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_float_to_integer_clamps(source, result):
    whole = (0, 1, 2, 127, 128, 255, 32767, 65535)
    near = [s * k + f for s in (1, -1) for k in whole for f in (0, 0.25, 0.5, 0.75)]
    far = [s * 2.0**k * f for s in (1, -1) for k in (31, 32, 63, 64) for f in (1 - 2.0**-24, 1, 1 + 2.0**-23)]
    dtype = source.replace("f", "float")
    with np.errstate(over="ignore"):
        values = np.array([*near, *far, np.inf, -np.inf, np.nan], dtype)
    bits, signed = int(result[1:]), result[0] == "s"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    # PTX ISA, cvt: 0 "if source is not .f64 and destination is not .s64, .u64", else the top bit alone
    special = source == "f64" or bits == 64
    nan = (low if signed else 1 << bits - 1) if special else 0
    out = np.dtype(f"{'i' if signed else 'u'}{max(bits, 16) // 8}")
    for mode, function in ROUNDINGS.items():
        want = []
        for v in values.tolist():
            rounded = function(v) if math.isfinite(v) else v
            want.append(nan if math.isnan(v) else min(max(rounded, low), high))
        got = evaluate(f"cvt.{mode}.{result}.{source} %d, %a;", out, a=values)
        assert got.tolist() == want, mode


@pytest.mark.parametrize("source", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_integer_to_float(source):
    dtype = np.dtype(f"{'i' if source[0] == 's' else 'u'}{int(source[1:]) // 8}")
    info, bits = np.iinfo(dtype), int(source[1:])
    ties = []
    for k in range(24, bits - 1):
        half = 1 << k - 24
        ties += [(1 << k) + d for d in (-1, 0, 1, half, half - 1, half + 1, 3 * half)]
    values = np.array([0, 1, info.max, info.min, *ties], dtype)
    values = np.concatenate([values, RNG.integers(info.min, info.max, 500, dtype)])
    for fmt in ("f16", "f32", "f64"):
        modes = ["rn"] if bits == 64 or fmt == "f64" else ["rn", "rz", "rm", "rp"]
        if bits == 64 and fmt == "f16":
            continue
        for mode in modes:
            got = evaluate(f"cvt.{mode}.{fmt}.{source} %d, %a;", fmt.replace("f", "float"), a=values)
            want = [round_exactly(Fraction(v), fmt, mode) for v in values.tolist()]
            assert got.tolist() == want, (fmt, mode)


def test_rounding_to_integers_in_f32():
    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e10, -0.0, 8388607.5, np.nan], F32)
    for mode, function in {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}.items():
        want = function(values).view(np.uint32)
        want[-1] = NAN32
        same_bits(evaluate(f"cvt.{mode}.f32.f32 %d, %a;", np.uint32, a=values.view(np.uint32)), want)


def test_cvt_sat_of_floats():
    values = np.array([-2, 0.5, 3, np.nan], F32)
    assert evaluate("cvt.sat.f32.f32 %d, %a;", F32, a=values).tolist() == [0, 0.5, 1, 0]


def test_the_reference_itself():
    assert set(FORMATS) == {"f16", "bf16", "f32", "f64"}
    assert round_exactly(Fraction(1, 3), "f64") == 1 / 3
    assert round_exactly(Fraction(65520), "f16") == math.inf
    assert round_exactly(Fraction(65520), "f16", "rz") == 65504
    assert round_exactly(Fraction(3, 2**25), "f16") == 2.0**-23
