"""E8M0: all its bytes, and the rules that choose a scale, against fractions and against GGUF's mxfp4 bytes."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import cbquant
from cbquant import _codecs
from cbquant.reference import codecs
from tests import codec_inputs
from tests.paths import PATHS, Path

ELEMENTS = _codecs.ELEMENTS


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def magnitudes() -> NDArray[np.float64]:
    """Powers of two and what is beside them, in float64, float32 and at the few bits of an element."""
    powers = np.ldexp(1.0, np.arange(-1074, 1024))
    around = [powers, np.nextafter(powers, 0), np.nextafter(powers, np.inf)]
    within = np.ldexp(1.0, np.arange(-149, 128))
    for bits in range(1, 9):  # ties of rounding to as many bits, and their neighbours
        ties = within * (2 - 2.0**-bits)
        around += [ties, np.nextafter(ties, 0), np.nextafter(ties, np.inf), within * (1 + 2.0**-bits)]
    for largest in (6, 7.5, 28, 448, 57344, 240, 127 / 64):
        around += [within * largest, np.nextafter(within * largest, 0), np.nextafter(within * largest, np.inf)]
    return np.concatenate([*around, [0.0, np.inf, np.nan, -1.0, -np.inf]])


def narrow(x: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def test_all_bytes(path: Path) -> None:
    """Hard case 3: 0 is the subnormal 2^-127, 255 is NaN."""
    values = path.decode_codes("e8m0", np.arange(256, dtype=np.uint8)).view(np.float32)
    assert [Fraction(float(v)) for v in values[:255]] == [Fraction(2) ** (e - 127) for e in range(255)]
    assert np.isnan(values[255])
    assert not np.signbit(values[:255]).any()


def exact_scale(amax: float, rule: str, emax: int, mbits: int, largest: float) -> int:
    """A rule, as it is stated, in fractions."""
    if not math.isfinite(amax):
        return 255
    size = abs(Fraction(amax))
    if size == 0:
        return 0
    if rule == "ceil":
        near = exponent_of(size) - exponent_of(Fraction(largest)) - 1
        power = next(k for k in range(near, near + 4) if size <= Fraction(largest) * Fraction(2) ** k)
    else:
        exponent = exponent_of(size)
        if rule == "even":
            unit = Fraction(2) ** (exponent - mbits)
            size = round(size / unit) * unit  # ties to even
        power = exponent_of(size) - emax
    return min(max(power + 127, 0), 254)


def exponent_of(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1


@pytest.mark.parametrize("rule", ["floor", "ceil", "even"])
@pytest.mark.parametrize("element", ["e2m1", "e4m3fn", "mxint8"])
def test_the_reference_is_exact(rule: str, element: str) -> None:
    numbers = _codecs.scale_rule(rule, element, None, None, None)
    x = magnitudes()[::11]
    expected = [exact_scale(float(v), **numbers) for v in x]  # type: ignore[arg-type]
    assert codecs.encode_scale(x, **numbers).tolist() == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", codecs.RULES)
def test_scales(path: Path, rule: str) -> None:
    x = magnitudes()
    inputs = [x, narrow(x), narrow(x).astype(ml_dtypes.bfloat16), np.abs(codec_inputs.random_finite(10_000))]
    with np.errstate(over="ignore"):
        inputs.append(x.astype(np.float16))
    for element in ELEMENTS if rule != "ggml" else ["e2m1"]:
        numbers = _codecs.scale_rule(rule, element, None, None, None)
        for given in inputs:
            expected = codecs.encode_scale(given, **numbers)  # type: ignore[arg-type]
            assert np.array_equal(path.encode_codes("e8m0", given, **numbers), expected), (element, given.dtype)


@pytest.mark.parametrize("rule", ["floor", "even"])
def test_numbers_of_the_rule(path: Path, rule: str) -> None:
    x = magnitudes()
    for emax, mbits in itertools.product([-127, -3, 0, 127], [0, 1, 23, 51]):
        expected = codecs.encode_scale(x, rule, emax, mbits)
        assert np.array_equal(path.encode_codes("e8m0", x, rule=rule, emax=emax, mbits=mbits), expected), (emax, mbits)


@pytest.mark.parametrize("largest", [2.0**-126, 1.0, 1.5, 3.0**80])
def test_largest_of_the_rule(path: Path, largest: float) -> None:
    x = np.concatenate([magnitudes(), np.ldexp(largest, np.arange(-60, 60))])
    assert np.array_equal(
        path.encode_codes("e8m0", x, rule="ceil", largest=largest), codecs.encode_scale(x, "ceil", largest=largest)
    )


def test_ggml_gives_the_bytes_of_mxfp4() -> None:
    amax = narrow(magnitudes())
    amax = np.abs(amax[np.isfinite(amax)])
    x = np.zeros((len(amax), 32), np.float32)
    x[np.arange(len(amax)), np.arange(len(amax)) % 32] = amax
    bytes_of_blocks = cbquant.quantize(x, "mxfp4")[:, 0]
    assert np.array_equal(cbquant.e8m0.encode(amax, "ggml"), bytes_of_blocks)
    # Hard case 14: the last floats below a power of two count as that power.
    assert cbquant.e8m0.encode(np.array([15.999999, 1e-40, 1e-38], np.float32), "ggml").tolist() == [129, 0, 0]


def test_ceil_never_saturates_and_floor_is_at_most_that() -> None:
    amax = np.abs(codec_inputs.random_finite(10_000))
    amax = amax[(amax > 1e-30) & (amax < 1e30)]
    for element in ELEMENTS:
        largest = _codecs.KINDS[element].largest
        ceil = cbquant.e8m0.decode(cbquant.e8m0.encode(amax, "ceil", element))
        floor = cbquant.e8m0.decode(cbquant.e8m0.encode(amax, "floor", element))
        assert (amax.astype(np.float64) <= ceil.astype(np.float64) * largest).all()
        assert (amax.astype(np.float64) > ceil.astype(np.float64) / 2 * largest).all()
        assert (floor <= ceil).all()


# --- what is refused ---


def test_rules_that_are_refused() -> None:
    x = np.ones(3, np.float32)
    encode = cbquant.e8m0.encode
    with pytest.raises(ValueError, match="rule: expected one of floor, ceil, even, ggml, got 'round'"):
        encode(x, "round")
    with pytest.raises(TypeError, match="rule: expected one of floor, ceil, even, ggml, got int"):
        encode(x, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"element: expected one of e2m1, .*, got 'e4m3'"):
        encode(x, element="e4m3")
    with pytest.raises(ValueError, match="element: rule 'ggml' is that of mxfp4, whose elements are e2m1, got 'e5m2'"):
        encode(x, "ggml", "e5m2")
    with pytest.raises(ValueError, match=r"largest: rule 'floor' does not use it \(it uses emax\)"):
        encode(x, largest=6.0)
    with pytest.raises(ValueError, match=r"emax: rule 'ceil' does not use it \(it uses largest\)"):
        encode(x, "ceil", emax=2)
    with pytest.raises(ValueError, match=r"mbits: rule 'ggml' does not use it \(it is fixed\)"):
        encode(x, "ggml", mbits=1)


def test_numbers_that_are_refused() -> None:
    x = np.ones(3, np.float32)
    encode = cbquant.e8m0.encode
    with pytest.raises(ValueError, match="emax: expected -127 to 127, got 128"):
        encode(x, emax=128)
    with pytest.raises(ValueError, match="emax: expected a small whole number, got 4294967296"):
        encode(x, emax=2**32)
    with pytest.raises(TypeError, match="emax: expected a whole number, got float"):
        encode(x, emax=2.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mbits: expected 0 to 51, got -1"):
        encode(x, "even", mbits=-1)
    for largest in (0.0, -6.0, math.inf, math.nan, 2.0**-127):
        with pytest.raises(ValueError, match=r"largest: expected a finite number from 2\^-126 up, got"):
            encode(x, "ceil", largest=largest)
    with pytest.raises(TypeError, match="largest: expected a number, got str"):
        encode(x, "ceil", largest="six")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="amax: expected float32, float64, float16, bfloat16, got int64"):
        encode(np.ones(3, np.int64))
