"""Logic, shifts, bit fields and byte permutes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .decode import Decoder, Lanes, Machine, Step, op
from .dtypes import TYPES, Type
from .model import Imm, Pair

_U8, _U32 = np.uint8, TYPES["u32"]
_LOGIC = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_BYTE_POPCOUNT = np.array([bin(i).count("1") for i in range(256)], np.uint32)
_BYTE_REVERSED = np.array([int(f"{i:08b}"[::-1], 2) for i in range(256)], _U8)


@op("and", "or", "xor")
def logic(d: Decoder) -> Step:
    t, function = d.type(), _LOGIC[d.name]
    a, b, put = d.source(1, t), d.source(2, t), d.target(0, t)
    return lambda machine, at: put(machine, at, function(a(machine, at), b(machine, at)))


@op("not", "cnot")
def invert(d: Decoder) -> Step:
    t = d.type()
    a, put = d.source(1, t), d.target(0, t)
    if d.name == "not":
        return lambda machine, at: put(machine, at, ~a(machine, at))
    return lambda machine, at: put(machine, at, (a(machine, at) == 0).astype(t.dtype))


@op("lop3")
def logic_of_three(d: Decoder) -> Step:
    """Any function of three bits: bit `4 a + 2 b + c` of the immediate is its value."""
    t, combine = d.type(), d.choice("and", "or")
    d.operand_count(5 if combine is None else 6)
    table = d.operands[4]
    if not isinstance(table, Imm):
        raise d.unsupported("lop3 with a table that is not a literal")
    minterms = [i for i in range(8) if table.value >> i & 1]
    reads = [d.source(i, t) for i in (1, 2, 3)]
    result, any_bit = d.operands[0], None
    if combine is not None:
        if not isinstance(result, Pair):
            raise d.unsupported("lop3 with a boolean operator needs a destination predicate")
        any_bit, other, result = d.target(result.second, TYPES["pred"]), d.predicate(5), result.first
    put = d.target(result, t)

    def step(machine: Machine, at: Lanes) -> None:
        a, b, c = (read(machine, at) for read in reads)
        value = np.zeros(machine.count(at), t.dtype)
        for m in minterms:
            value |= (a if m & 4 else ~a) & (b if m & 2 else ~b) & (c if m & 1 else ~c)
        if any_bit is not None:
            q = other(machine, at)
            any_bit(machine, at, (value != 0) & q if combine == "and" else (value != 0) | q)
        put(machine, at, value)

    return step


@op("shl", "shr")
def shift(d: Decoder) -> Step:
    """Counts from the width on shift everything out; shr.s fills with the sign."""
    t = d.type()
    a, n, put = d.source(1, t), d.source(2, _U32), d.target(0, t)
    function = np.left_shift if d.name == "shl" else np.right_shift
    arithmetic = d.name == "shr" and t.kind == "s"
    last = np.uint32(t.bits - 1)

    def step(machine: Machine, at: Lanes) -> None:
        value, count = a(machine, at), n(machine, at)
        shifted = function(value, np.minimum(count, last).astype(t.dtype))
        if not arithmetic:
            shifted = np.where(count > last, t.dtype.type(0), shifted)
        put(machine, at, shifted)

    return step


@op("shf")
def funnel_shift(d: Decoder) -> Step:
    """Shift the 64 bits {b, a}: `l` keeps the upper word, `r` the lower one."""
    left, clamp = d.need("l", "r") == "l", d.need("clamp", "wrap") == "clamp"
    t = d.type()
    if t.name != "b32":
        raise d.unsupported(f"shf of .{t.name}")
    low, high, n, put = d.source(1, _U32), d.source(2, _U32), d.source(3, _U32), d.target(0, _U32)

    def step(machine: Machine, at: Lanes) -> None:
        count = n(machine, at)
        count = (np.minimum(count, np.uint32(32)) if clamp else count & np.uint32(31)).astype(np.uint64)
        both = high(machine, at).astype(np.uint64) << np.uint64(32) | low(machine, at)
        put(machine, at, ((both << count) >> np.uint64(32) if left else both >> count).astype(np.uint32))

    return step


@op("bfe")
def bit_field_extract(d: Decoder) -> Step:
    t = d.type()
    a, start, length, put = d.source(1, t), d.source(2, _U32), d.source(3, _U32), d.target(0, t)
    width = t.bits

    def step(machine: Machine, at: Lanes) -> None:
        pos = np.minimum(start(machine, at) & np.uint32(255), np.uint32(width)).astype(np.int64)
        size = (length(machine, at) & np.uint32(255)).astype(np.int64)
        value = a(machine, at)
        field = _shift_right(value, pos, t)
        # The field ends where the word ends; beyond, shr has filled in zeros or the sign already.
        inside = np.minimum(size, width - pos)
        unused = (width - inside).astype(np.int64)
        kept = _shift_right(_shift_left(field, unused, t), unused, t)
        if t.kind == "s":  # past the end, the sign of the word; an empty field is zero
            kept = np.where(pos == width, _shift_right(value, np.int64(width), t), kept)
        put(machine, at, np.where(size == 0, t.dtype.type(0), kept))

    return step


@op("bfi")
def bit_field_insert(d: Decoder) -> Step:
    t = d.type()
    a, b, put = d.source(1, t), d.source(2, t), d.target(0, t)
    start, length = d.source(3, _U32), d.source(4, _U32)
    ones = t.dtype.type((1 << t.bits) - 1)

    def step(machine: Machine, at: Lanes) -> None:
        pos = (start(machine, at) & np.uint32(255)).astype(np.int64)
        size = (length(machine, at) & np.uint32(255)).astype(np.int64)
        mask = _shift_left(~_shift_left(ones, size, t), pos, t)
        put(machine, at, b(machine, at) & ~mask | _shift_left(a(machine, at), pos, t) & mask)

    return step


@op("prmt")
def permute_bytes(d: Decoder) -> Step:
    """Byte i of the result is the byte of {b, a} that nibble i selects; bit 3 set: its sign, eight times."""
    mode = d.choice(*_PERMUTE_MODES)
    if d.type().name != "b32":
        raise d.unsupported("prmt of other types than .b32")
    a, b, selector, put = d.source(1, _U32), d.source(2, _U32), d.source(3, _U32), d.target(0, _U32)

    def step(machine: Machine, at: Lanes) -> None:
        source = np.empty((machine.count(at), 2), np.uint32)
        source[:, 0], source[:, 1] = a(machine, at), b(machine, at)
        source = source.view(_U8)
        nibbles = selector(machine, at)
        if mode:
            nibbles = _PERMUTE_MODES[mode][nibbles & np.uint32(3)]
        select = nibbles[..., None] >> _NIBBLE & np.uint32(15)
        byte = select & np.uint32(7)
        if byte.ndim == 1:  # one literal for all lanes
            found = source[:, byte]
        else:
            found = np.take_along_axis(source, byte.astype(np.intp), axis=1)
        sign = select > 7
        if sign.any():
            found = np.where(sign, np.where(found > 127, _U8(255), _U8(0)), found)
        put(machine, at, np.ascontiguousarray(found).view(np.uint32)[:, 0])

    return step


_NIBBLE = np.array([0, 4, 8, 12], np.uint32)
# The special modes as selectors of the general one, by the two low bits of the control operand.
_PERMUTE_MODES = {
    "f4e": np.array([0x3210, 0x4321, 0x5432, 0x6543], np.uint32),
    "b4e": np.array([0x5670, 0x6701, 0x7012, 0x0123], np.uint32),
    "rc8": np.array([0x0000, 0x1111, 0x2222, 0x3333], np.uint32),
    "ecl": np.array([0x3210, 0x3211, 0x3222, 0x3333], np.uint32),
    "ecr": np.array([0x0000, 0x1110, 0x2210, 0x3210], np.uint32),
    "rc16": np.array([0x1010, 0x3232, 0x1010, 0x3232], np.uint32),
}


@op("popc", "clz", "brev", "bfind")
def count_bits(d: Decoder) -> Step:
    t, from_top = d.type(), d.name == "bfind" and d.flag("shiftamt")
    a, put = d.source(1, t), d.target(0, t if d.name == "brev" else _U32)
    functions = {
        "popc": _popcount,
        "clz": lambda v: np.uint32(t.bits) - _bit_length(v),
        "brev": _reverse,
        "bfind": lambda v: _find_leading(v, t, from_top),
    }
    function = functions[d.name]
    return lambda machine, at: put(machine, at, function(np.atleast_1d(a(machine, at))))


def _popcount(values: np.ndarray) -> np.ndarray:
    return _BYTE_POPCOUNT[_bytes(values)].sum(axis=1, dtype=np.uint32)


def _reverse(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(_BYTE_REVERSED[_bytes(values)][:, ::-1]).view(values.dtype)[:, 0]


def _bit_length(values: np.ndarray) -> np.ndarray:
    """The place of the highest set bit plus one; 0 for 0. Unsigned values."""
    left, length = values.astype(np.uint64), np.zeros(values.shape, np.uint32)
    for step in (32, 16, 8, 4, 2, 1):
        above = left >> np.uint64(step) != 0
        length += np.where(above, np.uint32(step), np.uint32(0))
        left = np.where(above, left >> np.uint64(step), left)
    return length + (left != 0)


def _find_leading(values: np.ndarray, t: Type, from_top: bool) -> np.ndarray:
    """Place of the highest bit that is not the sign; all ones where there is none."""
    bits = np.where(values < 0, ~values, values) if t.kind == "s" else values
    length = _bit_length(bits.view(f"u{t.bytes}"))
    place = np.uint32(t.bits) - length if from_top else length - np.uint32(1)
    return np.where(length == 0, np.uint32(0xFFFFFFFF), place).astype(np.uint32)


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(_U8).reshape(len(values), -1)


def _shift_by(function: Callable, value: np.ndarray, count: np.ndarray, t: Type) -> np.ndarray:
    """A shift by 0 up to any count, the width and more included, without the C language's gaps."""
    last = t.bits - 1
    shifted = function(value, np.minimum(count, last).astype(t.dtype))
    return np.where(count > last, function(shifted, t.dtype.type(1)), shifted)


def _shift_left(value: np.ndarray, count: np.ndarray, t: Type) -> np.ndarray:
    return _shift_by(np.left_shift, value, count, t)


def _shift_right(value: np.ndarray, count: np.ndarray, t: Type) -> np.ndarray:
    return _shift_by(np.right_shift, value, count, t)
