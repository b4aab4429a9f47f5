"""Every block format in exact rational arithmetic, one element at a time.

An oracle that shares nothing with NumPy's arithmetic: a block is one big integer, an element a formula over
fields at *bit* positions of it, its value a `Fraction`, rounded once to float32 by `round_to_float32`. It
decides every value; it says nothing about the sign of a zero, and it has no NaN or inf (`NotFinite`).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from cbquant.reference import _tables


class NotFinite(ValueError):
    """The block holds a scale that is NaN or inf."""


class Block:
    """A block as a number: bit 0 is the lowest bit of byte 0."""

    def __init__(self, data: bytes) -> None:
        self._word = int.from_bytes(data, "little")

    def __call__(self, position: int, count: int) -> int:
        """The `count` bits from bit `position` on."""
        return (self._word >> position) & ((1 << count) - 1)

    def signed(self, position: int) -> int:
        """A two's complement byte."""
        byte = self(position, 8)
        return byte - 256 if byte > 127 else byte

    def half(self, position: int) -> Fraction:
        """An IEEE binary16 number."""
        return half(self(position, 16))


def half(pattern: int) -> Fraction:
    """The value of a binary16 bit pattern."""
    exponent, fraction = pattern >> 10 & 31, pattern & 1023
    if exponent == 31:
        raise NotFinite(f"binary16 {pattern:#06x}")
    magnitude = fraction if exponent == 0 else (1024 + fraction) << (exponent - 1)
    return Fraction(-magnitude if pattern >> 15 else magnitude, 1 << 24)


def round_to_float32(value: Fraction) -> int:
    """The bit pattern of the float32 nearest to `value`, ties to even; a zero is +0.0, past the range it is
    inf."""
    sign = 0x80000000 if value < 0 else 0
    numerator, denominator = abs(value.numerator), value.denominator
    if numerator == 0:
        return 0
    exponent = numerator.bit_length() - denominator.bit_length()
    if numerator << max(0, -exponent) < denominator << max(0, exponent):
        exponent -= 1  # now 2^exponent <= |value| < 2^(exponent + 1)
    unit = max(exponent, -126) - 23  # the weight of the last place; subnormals share that of 2^-126
    denominator <<= max(0, unit)
    significand, rest = divmod(numerator << max(0, -unit), denominator)
    if 2 * rest > denominator or (2 * rest == denominator and significand % 2):
        significand += 1
    # A carry out of the significand runs into the exponent field, which is what it should do, up to inf.
    pattern = significand if unit == -149 else ((unit + 149) << 23) + significand
    return sign | min(pattern, 0x7F800000)


def _k_scale(b: Block, group: int, first: int) -> int:
    """6-bit scale (`first` = 32, the bit position) or min (`first` = 64) of q4_k and q5_k."""
    if group < 4:
        return b(first + 8 * group, 6)
    low = b(96 + 8 * (group - 4) + (0 if first == 32 else 4), 4)
    return low + 16 * b(first + 8 * (group - 4) + 6, 2)


def _q3_k(b: Block, i: int) -> Fraction:
    group = i // 16
    low_scale = b(768 + 8 * (group % 8) + 4 * (group // 8), 4)
    high_scale = b(832 + 8 * (group % 4) + 2 * (group // 4), 2)
    low = b(256 + 256 * (i // 128) + 8 * (i % 32) + 2 * (i // 32 % 4), 2)
    high = b(8 * (i % 32) + i // 32, 1)
    return b.half(864) * (low_scale + 16 * high_scale - 32) * (low + 4 * high - 4)


def _q2_k(b: Block, i: int) -> Fraction:
    group = 8 * (i // 16)
    code = b(128 + 256 * (i // 128) + 8 * (i % 32) + 2 * (i // 32 % 4), 2)
    return b.half(640) * b(group, 4) * code - b.half(656) * b(group + 4, 4)


def _q4_k(b: Block, i: int) -> Fraction:
    code = b(128 + 256 * (i // 64) + 8 * (i % 32) + 4 * (i // 32 % 2), 4)
    return b.half(0) * _k_scale(b, i // 32, 32) * code - b.half(16) * _k_scale(b, i // 32, 64)


def _q5_k(b: Block, i: int) -> Fraction:
    low = b(384 + 256 * (i // 64) + 8 * (i % 32) + 4 * (i // 32 % 2), 4)
    high = b(128 + 8 * (i % 32) + i // 32, 1)
    return b.half(0) * _k_scale(b, i // 32, 32) * (low + 16 * high) - b.half(16) * _k_scale(b, i // 32, 64)


def _q6_k(b: Block, i: int) -> Fraction:
    low = b(512 * (i // 128) + 8 * (i % 64) + 4 * (i // 64 % 2), 4)
    high = b(1024 + 256 * (i // 128) + 8 * (i % 32) + 2 * (i // 32 % 4), 2)
    return b.half(1664) * b.signed(1536 + 8 * (i // 16)) * (low + 16 * high - 32)


def _tq1_0(b: Block, i: int) -> Fraction:
    if i < 160:
        byte, digit = i % 32, i // 32
    elif i < 240:
        byte, digit = 32 + i % 16, (i - 160) // 16
    else:
        byte, digit = 48 + i % 4, (i - 240) // 4
    # byte / 256 in base 3: its digit after `digit` others is the last one of floor(byte / 256 * 3^(digit +
    # 1)).
    return b.half(416) * (b(8 * byte, 8) * 3 ** (digit + 1) // 256 % 3 - 1)


_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def _iq4_xs(b: Block, i: int) -> Fraction:
    group = i // 32
    scale = b(32 + 4 * group, 4) + 16 * b(16 + 2 * group, 2)
    return b.half(0) * (scale - 32) * _IQ4[b(64 + 128 * group + 8 * (i % 16) + 4 * (i // 16 % 2), 4)]


def e2m1(code: int) -> Fraction:
    """The value of a 4-bit float: sign, two exponent bits of bias 1, one fraction bit."""
    exponent, fraction = code >> 1 & 3, code & 1
    halves = fraction if exponent == 0 else (2 + fraction) << (exponent - 1)
    return Fraction(-halves if code & 8 else halves, 2)


def e8m0(byte: int) -> Fraction:
    """The value of a power-of-two scale byte."""
    if byte == 255:
        raise NotFinite("E8M0 255")
    return Fraction(2) ** (byte - 127)


def e4m3_unsigned(byte: int) -> Fraction:
    """The value of an nvfp4 scale byte."""
    if byte == 0x7F:
        return Fraction(0)
    exponent, fraction = byte >> 3 & 15, byte & 7
    return Fraction(fraction if exponent == 0 else (8 + fraction) << (exponent - 1), 512)


def _mxfp4(b: Block, i: int) -> Fraction:
    return e8m0(b(0, 8)) * e2m1(b(8 + 8 * (i % 16) + 4 * (i // 16), 4))


def _nvfp4(b: Block, i: int) -> Fraction:
    code = b(32 + 64 * (i // 16) + 8 * (i % 8) + 4 * (i // 8 % 2), 4)
    return e4m3_unsigned(b(8 * (i // 16), 8)) * e2m1(code)


def _grid(name: str, row: int, column: int) -> int:
    return int(_tables.grid(name)[row, column])


def _signed_by_index(index: int, i: int, magnitude: int) -> int:
    """Negative where bit i mod 8 of the index is set; the eighth sign makes the number of negative ones
    even."""
    negative = index.bit_count() % 2 if i % 8 == 7 else index >> i % 8 & 1
    return -magnitude if negative else magnitude


def _signed_by_bit(negative: int, magnitude: int) -> int:
    return -magnitude if negative else magnitude


def _iq2_xxs(b: Block, i: int) -> Fraction:
    record, run = 16 + 64 * (i // 32), i // 8 % 4
    magnitude = _grid("iq2_xxs_grid", b(record + 8 * run, 8), i % 8)
    scale = b.half(0) * (2 * b(record + 60, 4) + 1) / 8
    return scale * _signed_by_index(b(record + 32 + 7 * run, 7), i, magnitude)


def _iq2_xs(b: Block, i: int) -> Fraction:
    entry = 16 + 16 * (i // 8)
    magnitude = _grid("iq2_xs_grid", b(entry, 9), i % 8)
    scale = b.half(0) * (2 * b(528 + 4 * (i // 16), 4) + 1) / 8
    return scale * _signed_by_index(b(entry + 9, 7), i, magnitude)


def _iq2_s(b: Block, i: int) -> Fraction:
    row = b(16 + 8 * (i // 8), 8) + 256 * b(528 + 2 * (i // 8), 2)
    scale = b.half(0) * (2 * b(592 + 4 * (i // 16), 4) + 1) / 8
    return scale * _signed_by_bit(b(272 + i, 1), _grid("iq2_s_grid", row, i % 8))


def _iq3_xxs(b: Block, i: int) -> Fraction:
    magnitude = _grid("iq3_xxs_grid", b(16 + 8 * (i // 4), 8), i % 4)
    word = 528 + 32 * (i // 32)
    scale = b.half(0) * (2 * b(word + 28, 4) + 1) / 4
    return scale * _signed_by_index(b(word + 7 * (i // 8 % 4), 7), i, magnitude)


def _iq3_s(b: Block, i: int) -> Fraction:
    row = b(16 + 8 * (i // 4), 8) + 256 * b(528 + i // 4, 1)
    scale = b.half(0) * (2 * b(848 + 4 * (i // 32), 4) + 1)
    return scale * _signed_by_bit(b(592 + i, 1), _grid("iq3_s_grid", row, i % 4))


def _iq1_s(b: Block, i: int) -> Fraction:
    word = 272 + 16 * (i // 32)
    row = b(16 + 8 * (i // 8), 8) + 256 * b(word + 3 * (i // 8 % 4), 3)
    shift = Fraction(-1 if b(word + 15, 1) else 1, 8)
    return b.half(0) * (2 * b(word + 12, 3) + 1) * (_grid("iq1_s_grid", row, i % 8) + shift)


def _iq1_m(b: Block, i: int) -> Fraction:
    scale = half(sum(b(396 + 16 * k, 4) << 4 * k for k in range(4)))
    high = 256 + 4 * (i // 8)
    row = b(8 * (i // 8), 8) + 256 * b(high, 3)
    shift = Fraction(-1 if b(high + 3, 1) else 1, 8)
    step = 2 * b(384 + 16 * (i // 64) + 3 * (i // 16 % 4), 3) + 1
    return scale * step * (_grid("iq1_s_grid", row, i % 8) + shift)


def _nibble(b: Block, first: int, i: int) -> int:
    """4-bit code of a block of 32, its codes from bit `first` on: 16 low nibbles, then 16 high ones."""
    return b(first + 8 * (i % 16) + 4 * (i // 16), 4)


#: The value of element i of a block, by format.
ELEMENT: dict[str, Callable[[Block, int], Fraction]] = {
    "q4_0": lambda b, i: b.half(0) * (_nibble(b, 16, i) - 8),
    "q4_1": lambda b, i: b.half(0) * _nibble(b, 32, i) + b.half(16),
    "q5_0": lambda b, i: b.half(0) * (_nibble(b, 48, i) + 16 * b(16 + i, 1) - 16),
    "q5_1": lambda b, i: b.half(0) * (_nibble(b, 64, i) + 16 * b(32 + i, 1)) + b.half(16),
    "q8_0": lambda b, i: b.half(0) * b.signed(16 + 8 * i),
    "q1_0": lambda b, i: b.half(0) * (2 * b(16 + i, 1) - 1),
    "q2_0": lambda b, i: b.half(0) * (b(16 + 2 * i, 2) - 1),
    "tq1_0": _tq1_0,
    "tq2_0": lambda b, i: b.half(512) * (b(256 * (i // 128) + 8 * (i % 32) + 2 * (i // 32 % 4), 2) - 1),
    "q2_k": _q2_k,
    "q3_k": _q3_k,
    "q4_k": _q4_k,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
    "iq4_nl": lambda b, i: b.half(0) * _IQ4[_nibble(b, 16, i)],
    "iq4_xs": _iq4_xs,
    "mxfp4": _mxfp4,
    "nvfp4": _nvfp4,
    "iq2_xxs": _iq2_xxs,
    "iq2_xs": _iq2_xs,
    "iq2_s": _iq2_s,
    "iq3_xxs": _iq3_xxs,
    "iq3_s": _iq3_s,
    "iq1_s": _iq1_s,
    "iq1_m": _iq1_m,
}


def decode(fmt: str, blocks: np.ndarray, elements: int) -> tuple[np.ndarray, np.ndarray]:
    """Bit patterns uint32 ``[m, elements]`` of the blocks whose scales are finite, and which ones those
    are, bool ``[n]``. Zeros are +0.0."""
    patterns: list[list[int]] = []
    finite = np.zeros(len(blocks), bool)
    element, rounded = ELEMENT[fmt], {}
    for n, row in enumerate(blocks):
        block = Block(row.tobytes())
        try:
            values = [element(block, i) for i in range(elements)]
        except NotFinite:
            continue
        finite[n] = True
        for value in set(values) - rounded.keys():
            rounded[value] = round_to_float32(value)
        patterns.append([rounded[value] for value in values])
    return np.array(patterns, np.uint32).reshape(-1, elements), finite
