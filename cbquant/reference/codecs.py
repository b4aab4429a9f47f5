"""The NumPy oracle of the codecs: small floats, fixed-point bytes and exponent bytes, element by element.

A kind is the list of all its values. Decoding looks a code up in it; encoding counts the midpoints between neighbours
that a magnitude clears. Nothing here works on bits of floats, which is how the C side does it.

>>> import numpy as np
>>> from cbquant.reference import codecs
>>> codecs.decode("e2m1", np.arange(8, dtype=np.uint8))
array([0. , 0.5, 1. , 1.5, 2. , 3. , 4. , 6. ], dtype=float32)
>>> codecs.encode("e2m1", [0.25, 0.26, -5.0, np.inf])
array([ 0,  1, 14,  7], dtype=uint8)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8]
Doubles = NDArray[np.float64]


class SmallFloat(NamedTuple):
    """A sign bit, exponent bits, mantissa bits; what stands at the top of the magnitudes."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    finite: int  # codes of finite magnitudes
    beyond: int | None  # the magnitude code that overflow gives (without saturation); None: there is only the largest
    nan: int | None  # the magnitude code that NaN gives
    has_negative_zero: bool = True


#: Magnitudes of e5m2 end in infinity (124) and NaN (125 ..), those of e4m3fn in NaN (127).
#: The NaN of the fnuz kinds is what would be -0: the sign bit alone.
FLOATS = {
    "e2m1": SmallFloat(2, 1, 1, 8, None, None),
    "e2m3": SmallFloat(2, 3, 1, 32, None, None),
    "e3m2": SmallFloat(3, 2, 3, 32, None, None),
    "e4m3fn": SmallFloat(4, 3, 7, 127, 127, 127),
    "e4m3fnuz": SmallFloat(4, 3, 8, 128, 128, 128, has_negative_zero=False),
    "e5m2": SmallFloat(5, 2, 15, 124, 124, 126),
    "e5m2fnuz": SmallFloat(5, 2, 16, 128, 128, 128, has_negative_zero=False),
}
RULES = ("floor", "ceil", "even", "ggml")


def names() -> list[str]:
    """The kinds of codes.

    >>> names()
    ['e2m1', 'e2m3', 'e3m2', 'e4m3fn', 'e4m3fnuz', 'e5m2', 'e5m2fnuz', 'e8m0', 'mxint8']
    """
    return sorted([*FLOATS, "mxint8", "e8m0"])


def magnitudes(kind: str) -> Doubles:
    """The finite values from 0 up, in the order of their codes (of e8m0: of all but 255)."""
    if kind == "mxint8":
        return np.arange(128) / 64.0
    if kind == "e8m0":
        return np.ldexp(1.0, np.arange(255) - 127)
    f = FLOATS[kind]
    codes = np.arange(f.finite)
    exponent, mantissa = codes >> f.mantissa_bits, codes % 2**f.mantissa_bits / 2.0**f.mantissa_bits
    normal = np.ldexp(1 + mantissa, np.maximum(exponent, 1) - f.bias)
    subnormal = np.ldexp(mantissa, 1 - f.bias)
    return np.asarray(np.where(exponent == 0, subnormal, normal))


def values(kind: str) -> Doubles:
    """The values of all codes, in order."""
    positive = magnitudes(kind)
    if kind == "mxint8":
        return np.concatenate([positive, -2.0 + positive])
    if kind == "e8m0":
        return np.append(positive, np.nan)
    f = FLOATS[kind]
    half = np.full(2 ** (f.exponent_bits + f.mantissa_bits), np.nan)
    half[: f.finite] = positive
    if f.beyond is not None and f.beyond != f.nan:
        half[f.beyond] = np.inf
    both = np.concatenate([half, -half])
    if not f.has_negative_zero:
        both[len(half)] = np.nan
    return both


def decode(kind: str, codes: Any) -> NDArray[np.float32]:
    """The values of codes, exactly; bits above those of a code do not count.

    >>> decode("mxint8", np.array([1, 64, 255], np.uint8)).tolist()
    [0.015625, 1.0, -0.015625]
    """
    table = values(kind)
    return table.astype(np.float32)[np.asarray(codes, np.uint8).astype(np.int64) % len(table)]


def encode(kind: str, x: Any, saturate: bool = True) -> Codes:
    """The code of the nearest value; of two that are as near the even code.

    Infinity and what is beyond the largest value go to that, with `saturate` or where a kind has nothing else. NaN is
    the kind's NaN; without one, the magnitude is 0 and the sign stays (in mxint8: 0).
    """
    with np.errstate(invalid="ignore"):  # some NaNs of float16 say so
        given = np.asarray(x).astype(np.float64)
    size, negative, is_nan = np.abs(given), np.signbit(given), np.isnan(given)
    code = _nearest(magnitudes(kind), np.where(is_nan, 0, size))
    largest = len(magnitudes(kind)) - 1
    f = FLOATS.get(kind)
    if f is None:
        code = np.minimum(code, largest)
        return np.where(negative & ~is_nan, -code, code).astype(np.uint8)
    if saturate or f.beyond is None:
        code = np.minimum(code, largest)
    code = np.where(code > largest, f.beyond or 0, code)
    code = np.where(is_nan, f.nan or 0, code)
    if not f.has_negative_zero:
        negative = negative & (code != 0)
    return np.asarray(code | negative * 2 ** (f.exponent_bits + f.mantissa_bits), np.uint8)


def _nearest(ascending: Doubles, size: Doubles) -> NDArray[np.int64]:
    """The number of midpoints below `size`; on one, of the codes beside it the even one. Beyond the last value the
    next would have been one more step away."""
    following = np.append(ascending[1:], 2 * ascending[-1] - ascending[-2])
    midpoints = (ascending + following) / 2
    code = np.searchsorted(midpoints, size, side="left")
    on_midpoint = size == np.append(midpoints, np.inf)[code]
    return np.where(on_midpoint & (code % 2 == 1) & (code < len(midpoints)), code + 1, code)


def encode_scale(amax: Any, rule: str, emax: int = 0, mbits: int = 0, largest: float = 1.0) -> Codes:
    """E8M0 bytes for blocks of these largest magnitudes.

    With 2^n <= amax < 2^(n + 1): ``floor`` is n - emax; ``even`` the same of amax rounded to `mbits` mantissa bits,
    ties to even; ``ceil`` the least k with amax <= largest * 2^k; ``ggml`` floor(log2(amax) as float32) - 2. Plus 127,
    within 0..254. Infinity and NaN give 255.

    >>> encode_scale([1.0, 7.9, 0.0, np.nan], "floor", emax=2).tolist()
    [125, 127, 0, 255]
    """
    given = np.abs(np.asarray(amax).astype(np.float64))
    with np.errstate(all="ignore"):
        narrow = np.abs(np.asarray(amax).astype(np.float32))
    is_bad = ~np.isfinite(narrow if rule == "ggml" else given)
    size = np.where(is_bad | (given == 0), 1.0, given)
    fraction, exponent = np.frexp(size)  # fraction from 1/2 up
    if rule == "floor":
        power = exponent - 1 - emax
    elif rule == "even":
        _, carried = np.frexp(np.rint(np.ldexp(fraction, mbits + 1)))
        power = exponent - 1 - emax + (carried - (mbits + 1))
    elif rule == "ceil":
        top_fraction, top_exponent = np.frexp(largest)
        power = exponent - top_exponent + (fraction > top_fraction)
    else:
        with np.errstate(divide="ignore"):
            logarithm = np.log2(np.where(is_bad, 1.0, narrow).astype(np.float64)).astype(np.float32)
        power = np.maximum(np.floor(logarithm), -1000).astype(np.int64) - 2
    byte = np.clip(power + 127, 0, 254)
    return np.where(is_bad, 255, np.where(given == 0, 0, byte)).astype(np.uint8)


def pack(codes: Any, bits: int) -> Codes:
    """Codes ``[..., n]`` one after the other, the first in the lowest bits: ``[..., n * bits / 8]``.

    >>> pack(np.array([1, 2, 3, 4], np.uint8), 4).tolist()
    [33, 67]
    """
    digits = np.unpackbits(np.asarray(codes, np.uint8)[..., None], axis=-1, bitorder="little")[..., :bits]
    return np.packbits(digits.reshape(*digits.shape[:-2], digits.shape[-2] * bits), axis=-1, bitorder="little")


def unpack(packed: Any, bits: int) -> Codes:
    """The inverse of `pack`.

    >>> unpack(np.array([33, 67], np.uint8), 4).tolist()
    [1, 2, 3, 4]
    """
    digits = np.unpackbits(np.asarray(packed, np.uint8), axis=-1, bitorder="little")
    one_each = digits.reshape(*digits.shape[:-1], digits.shape[-1] // bits, bits)
    return np.packbits(one_each, axis=-1, bitorder="little")[..., 0]
