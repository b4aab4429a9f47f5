"""Integer instructions against Python's integers and the pseudo-code of the PTX ISA."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest

from .snippet import evaluate

RNG = np.random.default_rng(1)
_START = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def _same_numbers_whichever_tests_run():
    RNG.bit_generator.state = _START


def edges(dtype: type | np.dtype) -> list[int]:
    info = np.iinfo(dtype)
    return [0, 1, 2, 3, info.max, info.max - 1, info.min, info.min + 1, info.max // 3]


def cross(*dtypes: type) -> list[np.ndarray]:
    """All combinations of edge values, and random ones."""
    rows = list(itertools.product(*(edges(t) for t in dtypes)))
    found = []
    for i, t in enumerate(dtypes):
        column = np.array([row[i] for row in rows], t)
        found.append(np.concatenate([column, RNG.integers(*_limits(t), 200, t, endpoint=True)]))
    return found


def _limits(dtype: type) -> tuple[int, int]:
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def wrap(value: int, dtype: type | np.dtype) -> int:
    bits = 8 * np.dtype(dtype).itemsize
    value %= 1 << bits
    return value - (1 << bits) if np.dtype(dtype).kind == "i" and value >> (bits - 1) else value


def check(code: str, result: type, reference, **inputs: np.ndarray) -> None:
    got = evaluate(code, result, **inputs)
    rows = zip(*(values.tolist() for values in inputs.values()), strict=True)
    want = [wrap(reference(*row), result) for row in rows]
    assert got.tolist() == want


UNSIGNED = {"u16": np.uint16, "u32": np.uint32, "u64": np.uint64}
INTEGERS = UNSIGNED | {"s16": np.int16, "s32": np.int32, "s64": np.int64}


@pytest.mark.parametrize("t", INTEGERS)
def test_arithmetic_wraps(t):
    a, b, c = cross(INTEGERS[t], INTEGERS[t], INTEGERS[t])
    bits = int(t[1:])
    check(f"add.{t} %d, %a, %b;", INTEGERS[t], lambda x, y: x + y, a=a, b=b)
    check(f"sub.{t} %d, %a, %b;", INTEGERS[t], lambda x, y: x - y, a=a, b=b)
    check(f"mul.lo.{t} %d, %a, %b;", INTEGERS[t], lambda x, y: x * y, a=a, b=b)
    check(f"mul.hi.{t} %d, %a, %b;", INTEGERS[t], lambda x, y: x * y >> bits, a=a, b=b)
    check(f"mad.lo.{t} %d, %a, %b, %c;", INTEGERS[t], lambda x, y, z: x * y + z, a=a, b=b, c=c)
    check(f"mad.hi.{t} %d, %a, %b, %c;", INTEGERS[t], lambda x, y, z: (x * y >> bits) + z, a=a, b=b, c=c)
    check(f"min.{t} %d, %a, %b;", INTEGERS[t], min, a=a, b=b)
    check(f"max.{t} %d, %a, %b;", INTEGERS[t], max, a=a, b=b)
    check(f"sad.{t} %d, %a, %b, %c;", INTEGERS[t], lambda x, y, z: z + abs(x - y), a=a, b=b, c=c)


@pytest.mark.parametrize("t", ["u16", "s16", "u32", "s32"])
def test_mul_wide_keeps_all_bits(t):
    a, b = cross(INTEGERS[t], INTEGERS[t])
    result = INTEGERS[f"{t[0]}{2 * int(t[1:])}"]
    check(f"mul.wide.{t} %d, %a, %b;", result, lambda x, y: x * y, a=a, b=b)
    check(f"mad.wide.{t} %d, %a, %b, %d;", result, lambda x, y: x * y - 1, a=a, b=b)  # an unwritten %d is -1


@pytest.mark.parametrize("t", INTEGERS)
def test_division_truncates(t):
    a, b = cross(INTEGERS[t], INTEGERS[t])
    a, b = a[b != 0], b[b != 0]

    def quotient(x: int, y: int) -> int:
        return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

    check(f"div.{t} %d, %a, %b;", INTEGERS[t], quotient, a=a, b=b)
    check(f"rem.{t} %d, %a, %b;", INTEGERS[t], lambda x, y: x - quotient(x, y) * y, a=a, b=b)


@pytest.mark.parametrize("t", ["s16", "s32", "s64"])
def test_abs_neg_wrap_at_the_minimum(t):
    (a,) = cross(INTEGERS[t])
    check(f"abs.{t} %d, %a;", INTEGERS[t], abs, a=a)
    check(f"neg.{t} %d, %a;", INTEGERS[t], lambda x: -x, a=a)


@pytest.mark.parametrize("types", ["u32.u32", "s32.s32", "u32.s32", "s32.u32"])
def test_dp4a_and_dp2a(types):
    a, b, c = cross(np.uint32, np.uint32, np.uint32)
    signed = [t == "s32" for t in types.split(".")]

    def parts(word: int, is_signed: bool, bits: int = 8) -> list[int]:
        dtype = np.dtype(f"{'i' if is_signed else 'u'}{bits // 8}").type
        return [wrap(word >> bits * i, dtype) for i in range(32 // bits)]

    def reference(x: int, y: int, z: int) -> int:
        return z + sum(p * q for p, q in zip(parts(x, signed[0]), parts(y, signed[1]), strict=True))

    check(f"dp4a.{types} %d, %a, %b, %c;", np.uint32, reference, a=a, b=b, c=c)
    for half, chosen in {"lo": slice(2), "hi": slice(2, 4)}.items():

        def of_two(x: int, y: int, z: int, chosen: slice = chosen) -> int:
            pairs = zip(parts(x, signed[0], 16), parts(y, signed[1])[chosen], strict=True)
            return z + sum(p * q for p, q in pairs)

        check(f"dp2a.{half}.{types} %d, %a, %b, %c;", np.uint32, of_two, a=a, b=b, c=c)


@pytest.mark.parametrize("t", ["b16", "b32", "b64"])
def test_logic(t):
    dtype = INTEGERS[f"u{t[1:]}"]
    a, b = cross(dtype, dtype)
    check(f"and.{t} %d, %a, %b;", dtype, lambda x, y: x & y, a=a, b=b)
    check(f"or.{t} %d, %a, %b;", dtype, lambda x, y: x | y, a=a, b=b)
    check(f"xor.{t} %d, %a, %b;", dtype, lambda x, y: x ^ y, a=a, b=b)
    check(f"not.{t} %d, %a;", dtype, lambda x: ~x, a=a)
    check(f"cnot.{t} %d, %a;", dtype, lambda x: x == 0, a=a)


def test_lop3_all_tables():
    a, b, c = (RNG.integers(0, 1 << 32, 4, np.uint32) for _ in range(3))
    for table in range(256):

        def reference(x: int, y: int, z: int, table: int = table) -> int:
            place = [4 * (x >> i & 1) + 2 * (y >> i & 1) + (z >> i & 1) for i in range(32)]
            return sum((table >> p & 1) << i for i, p in enumerate(place))

        check(f"lop3.b32 %d, %a, %b, %c, {table};", np.uint32, reference, a=a, b=b, c=c)


@pytest.mark.parametrize("t", ["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"])
def test_shifts_of_any_count(t):
    bits, dtype = int(t[1:]), INTEGERS[t.replace("b", "u")]
    counts = [0, 1, 7, bits - 1, bits, bits + 1, 255, 256, 1 << 31, (1 << 32) - 1]
    pairs = list(itertools.product(edges(dtype), counts))
    a, b = np.array([p[0] for p in pairs], dtype), np.array([p[1] for p in pairs], np.uint32)
    check(f"shr.{t} %d, %a, %b;", dtype, lambda x, n: x >> min(n, 64), a=a, b=b)
    if t[0] == "b":
        check(f"shl.{t} %d, %a, %b;", dtype, lambda x, n: x << n if n < bits else 0, a=a, b=b)


@pytest.mark.parametrize("direction", ["l", "r"])
@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shift(direction, mode):
    a, b, _ = cross(np.uint32, np.uint32, np.uint32)
    counts = np.resize(np.array([0, 1, 5, 31, 32, 33, 40, 63, 64, 1 << 31], np.uint32), len(a))

    def reference(low: int, high: int, n: int) -> int:
        n = min(n, 32) if mode == "clamp" else n & 31
        both = high << 32 | low
        return (both << n) >> 32 if direction == "l" else both >> n

    check(f"shf.{direction}.{mode}.b32 %d, %a, %b, %c;", np.uint32, reference, a=a, b=b, c=counts)


FIELDS = list(itertools.product([0, 1, 5, 31, 32, 40, 63, 64, 200, 255, 256, 300], repeat=2))


@pytest.mark.parametrize("t", ["u32", "s32", "u64", "s64"])
def test_bit_field_extract(t):
    msb, dtype = int(t[1:]) - 1, INTEGERS[t]
    values = np.resize(RNG.integers(*_limits(dtype), 97, dtype, endpoint=True), 4 * len(FIELDS))
    start, length = np.array(FIELDS * 4, np.uint32).T

    def reference(a: int, pos: int, size: int) -> int:
        pos, size = pos & 0xFF, size & 0xFF
        sign = 0 if t[0] == "u" or size == 0 else a >> min(pos + size - 1, msb) & 1
        return sum((a >> pos + i & 1 if i < size and pos + i <= msb else sign) << i for i in range(msb + 1))

    check(f"bfe.{t} %d, %a, %b, %c;", dtype, reference, a=values, b=start, c=length)


@pytest.mark.parametrize("t", ["b32", "b64"])
def test_bit_field_insert(t):
    msb, dtype = int(t[1:]) - 1, INTEGERS[f"u{t[1:]}"]
    a, b = (RNG.integers(*_limits(dtype), len(FIELDS), dtype, endpoint=True) for _ in range(2))
    start, length = np.array(FIELDS, np.uint32).T

    def reference(a: int, b: int, pos: int, size: int) -> int:
        for i in range(size & 0xFF):
            place = (pos & 0xFF) + i
            if place <= msb:
                b = b & ~(1 << place) | (a >> i & 1) << place
        return b

    code = f"bfi.{t} %d, %a, %b, %c, %e;"
    check(code, dtype, reference, a=a, b=b, c=start, e=length)


def permuted(a: int, b: int, selector: int) -> int:
    source = (b << 32 | a).to_bytes(8, "little")
    found = []
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = source[nibble & 7]
        found.append((255 if byte & 128 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(found), "little")


def test_prmt_default_mode_with_sign_bits():
    a, b = (RNG.integers(0, 1 << 32, 3000, np.uint32) for _ in range(2))
    selector = RNG.integers(0, 1 << 32, 3000, np.uint32)  # the upper half does not count
    check("prmt.b32 %d, %a, %b, %c;", np.uint32, permuted, a=a, b=b, c=selector)
    for literal in (0x3210, 0x7654, 0x7531, 0xBA98, 0xFEDC, 0x0808, 0x7540):
        check(f"prmt.b32 %d, %a, %b, {literal};", np.uint32, partial(permuted, selector=literal), a=a, b=b)
    check("prmt.b32 %d, %a, 0x4b000000, 0x7442;", np.uint32, lambda x: 0x4B000000 | x >> 16 & 255, a=a)


@pytest.mark.parametrize(
    ("mode", "places"),
    {  # which byte goes to place 3, 2, 1, 0, by control value 0 to 3: the table of the PTX ISA
        "f4e": ["3210", "4321", "5432", "6543"],
        "b4e": ["5670", "6701", "7012", "0123"],
        "rc8": ["0000", "1111", "2222", "3333"],
        "ecl": ["3210", "3211", "3222", "3333"],
        "ecr": ["0000", "1110", "2210", "3210"],
        "rc16": ["1010", "3232", "1010", "3232"],
    }.items(),
)
def test_prmt_modes(mode, places):
    a, b = (RNG.integers(0, 1 << 32, 8, np.uint32) for _ in range(2))
    control = np.arange(8, dtype=np.uint32)
    check(
        f"prmt.b32.{mode} %d, %a, %b, %c;",
        np.uint32,
        lambda x, y, c: permuted(x, y, int(places[c & 3], 16)),
        a=a,
        b=b,
        c=control,
    )


@pytest.mark.parametrize("bits", [32, 64])
def test_counting_bits(bits):
    dtype = INTEGERS[f"u{bits}"]
    a = np.concatenate([cross(dtype)[0], np.array([1 << i for i in range(bits)], dtype)])
    check(f"popc.b{bits} %d, %a;", np.uint32, lambda x: bin(x).count("1"), a=a)
    check(f"clz.b{bits} %d, %a;", np.uint32, lambda x: bits - x.bit_length(), a=a)
    check(f"brev.b{bits} %d, %a;", dtype, lambda x: int(f"{x:0{bits}b}"[::-1], 2), a=a)
    check(f"bfind.u{bits} %d, %a;", np.uint32, lambda x: x.bit_length() - 1, a=a)
    from_top = f"bfind.shiftamt.u{bits} %d, %a;"
    check(from_top, np.uint32, lambda x: bits - x.bit_length() if x else -1, a=a)
    signed = a.view(INTEGERS[f"s{bits}"])
    check(f"bfind.s{bits} %d, %a;", np.uint32, lambda x: (x if x >= 0 else ~x).bit_length() - 1, a=signed)


INT8 = {"u8": np.uint8, "s8": np.int8}


@pytest.mark.parametrize("source", [*INT8, *INTEGERS])
@pytest.mark.parametrize("result", [*INT8, *INTEGERS])
def test_cvt_between_integers(source, result):
    dtypes = INTEGERS | INT8
    of, to = dtypes[source], dtypes[result]
    # 8-bit values live in wider registers, of which the conversion reads the low byte and extends the result.
    register = np.uint16 if of in (np.uint8, np.int8) else of
    out = {np.uint8: np.uint16, np.int8: np.int16}.get(to, to)
    (a,) = cross(register)
    check(f"cvt.{result}.{source} %d, %a;", out, lambda x: wrap(wrap(x, of), to), a=a)
    (least, most), (low, high) = _limits(of), _limits(to)
    if least < low or most > high:  # .sat is legal only where it can matter
        clamp = f"cvt.sat.{result}.{source} %d, %a;"
        check(clamp, out, lambda x: min(max(wrap(x, of), low), high), a=a)
