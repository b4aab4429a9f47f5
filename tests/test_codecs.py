"""Codecs of small floats, fixed-point bytes and exponent bytes: every instruction set against the reference, and the
reference against ml_dtypes and exact fractions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from cbquant import _core
from cbquant.reference import bfloat16_bits, codecs
from tests import codec_inputs
from tests.codec_inputs import ML_DTYPES
from tests.paths import PATHS, Path, as_float

KINDS = [row[0] for row in _core.code_kinds()]
BITS = {row[0]: row[1] for row in _core.code_kinds()}
ROUNDED = [kind for kind in KINDS if kind != "e8m0"]
PACKED = [kind for kind in KINDS if BITS[kind] < 8]
FP8 = [kind for kind in codecs.FLOATS if BITS[kind] == 8]
BYTES = np.arange(256, dtype=np.uint8)
# A little more than whole vectors of any instruction set, and less than one.
LENGTHS = [0, 1, 3, 4, 31, 32, 33, 100, 1023]


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def assert_same_numbers(actual: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    """By bits, but any NaN is any NaN."""
    is_nan = np.isnan(expected)
    assert np.array_equal(np.isnan(actual), is_nan)
    assert np.array_equal(actual.view(np.uint32)[~is_nan], expected.view(np.uint32)[~is_nan])


# --- the reference ---


def test_the_reference_has_every_kind() -> None:
    assert codecs.names() == sorted(KINDS)
    for name, bits, *_, largest in _core.code_kinds():
        assert len(codecs.values(name)) == 2**bits
        assert codecs.magnitudes(name)[-1] == largest


@pytest.mark.parametrize("kind", ML_DTYPES)
def test_reference_values_are_those_of_ml_dtypes(kind: str) -> None:
    codes = BYTES[: 2 ** BITS[kind]]
    assert_same_numbers(codecs.decode(kind, codes), codes.view(ML_DTYPES[kind]).astype(np.float32))


@pytest.mark.parametrize("kind", codecs.FLOATS)
def test_reference_codes_are_those_of_ml_dtypes(kind: str) -> None:
    x = np.concatenate([codec_inputs.hard(kind), codec_inputs.random_finite(1_000_000)])
    if BITS[kind] < 8:
        x = x[~np.isnan(x)]
    with np.errstate(all="ignore"):
        expected = x.astype(ML_DTYPES[kind]).view(np.uint8)
    assert np.array_equal(codecs.encode(kind, x, saturate=False), expected)


@pytest.mark.parametrize("kind", ROUNDED)
def test_reference_codes_are_exact_for_float64(kind: str) -> None:
    inside = codec_inputs.hard(kind, np.float64)
    inside = inside[np.abs(inside) <= codecs.magnitudes(kind)[-1]]
    assert codecs.encode(kind, inside).tolist() == [codec_inputs.exact_code(kind, float(x)) for x in inside]


# --- decoding ---


@pytest.mark.parametrize("kind", KINDS)
def test_all_bytes_decode_to_the_values(path: Path, kind: str) -> None:
    """Bits above a code's do not count."""
    assert_same_numbers(path.decode_codes(kind, BYTES).view(np.float32), codecs.decode(kind, BYTES))


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_is_the_value_rounded(path: Path, kind: str) -> None:
    values = codecs.decode(kind, BYTES)
    with np.errstate(over="ignore"):
        halves = {"float16": values.astype(np.float16), "bfloat16": bfloat16_bits(values)}
    for dtype, expected in halves.items():
        actual = path.decode_codes(kind, BYTES, dtype).view(expected.dtype)
        assert np.array_equal(as_float(actual), as_float(expected), equal_nan=True), dtype
        assert np.array_equal(np.signbit(as_float(actual)), np.signbit(as_float(expected))) or "fnuz" in kind, dtype


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", LENGTHS)
def test_any_length_decodes(path: Path, kind: str, n: int) -> None:
    codes = np.random.default_rng(n).integers(0, 256, n + 1, dtype=np.uint8)[1:]
    assert_same_numbers(path.decode_codes(kind, codes).view(np.float32), codecs.decode(kind, codes))


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("n", [0, 1, 5, 8, 31, 33, 256])
def test_packed_codes_decode_from_the_lowest_bit(path: Path, kind: str, n: int) -> None:
    packed = np.random.default_rng(n).integers(0, 256, 3 * n, dtype=np.uint8)
    expected = codecs.decode(kind, codecs.unpack(packed, BITS[kind]))
    assert_same_numbers(path.decode_codes(kind, packed, packed=True).view(np.float32), expected)


# --- encoding ---


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize("saturate", [True, False])
def test_codes_of_float32(path: Path, kind: str, saturate: bool) -> None:
    n = 50_000 if path.emulated else 1_000_000
    x = np.concatenate([codec_inputs.hard(kind), codec_inputs.random_finite(n)])
    assert np.array_equal(path.encode_codes(kind, x, saturate=saturate), codecs.encode(kind, x, saturate))


@pytest.mark.parametrize("kind", codecs.FLOATS)
def test_codes_of_finite_float32_are_those_of_ml_dtypes(kind: str) -> None:
    x = np.concatenate([codec_inputs.hard(kind), codec_inputs.random_finite(1_000_000, seed=1)])
    x = x[np.isfinite(x)]
    expected = x.astype(ML_DTYPES[kind]).view(np.uint8)
    for path in PATHS:
        if not path.emulated:
            assert np.array_equal(path.encode_codes(kind, x, saturate=False), expected), path


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16], ids=lambda d: np.dtype(d).name)
def test_codes_of_other_types(path: Path, kind: str, dtype: type) -> None:
    """float64 is rounded once: its midpoints' neighbours are nearer than any float32."""
    with np.errstate(over="ignore"):
        x = codec_inputs.hard(kind, np.float64 if dtype is np.float64 else np.float32).astype(dtype)
        x = np.concatenate([x, codec_inputs.random_finite(5000).astype(dtype)])
    for saturate in (True, False):
        assert np.array_equal(path.encode_codes(kind, x, saturate=saturate), codecs.encode(kind, x, saturate))


def test_float64_is_rounded_once(path: Path) -> None:
    """Through float32 it would be a midpoint, and the even code of -448."""
    x = np.array([-431.99999999999994])
    codes = path.encode_codes("e4m3fn", x)
    assert path.decode_codes("e4m3fn", codes).view(np.float32).tolist() == [-416.0]
    assert codecs.encode("e4m3fn", x.astype(np.float32)) != codes


def test_float64_beyond_float32(path: Path) -> None:
    x = np.array([1e300, -1e300, 1e-300, -1e-300, 5e-324, np.inf, np.nan])
    assert path.encode_codes("e5m2", x).tolist() == [123, 251, 0, 128, 0, 123, 126]
    assert path.encode_codes("e5m2", x, saturate=False).tolist() == [124, 252, 0, 128, 0, 124, 126]
    assert path.encode_codes("mxint8", x).tolist() == [127, 129, 0, 0, 0, 127, 0]


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", LENGTHS)
def test_any_length_encodes(path: Path, kind: str, dtype: type, n: int) -> None:
    x = np.random.default_rng(n).normal(size=n + 1).astype(dtype)[1:] * 3
    assert np.array_equal(path.encode_codes(kind, x), codecs.encode(kind, x))


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("n", [0, 1, 5, 8, 31, 33, 300])
def test_codes_are_packed_from_the_lowest_bit(path: Path, kind: str, n: int) -> None:
    for dtype in (np.float32, np.float64, np.float16):
        x = (np.random.default_rng(n).normal(size=4 * n) * 3).astype(dtype)
        expected = codecs.pack(codecs.encode(kind, x), BITS[kind])
        assert np.array_equal(path.encode_codes(kind, x, packed=True), expected)


@pytest.mark.parametrize("kind", ROUNDED)
def test_codes_come_back(path: Path, kind: str) -> None:
    """Every number that has a code encodes to it (a kind's NaN may have several)."""
    codes = BYTES[: 2 ** BITS[kind]]
    values = codecs.decode(kind, codes)
    unique = ~np.isnan(values) & (values != -2.0 if kind == "mxint8" else True)
    again = path.encode_codes(kind, values, saturate=False)
    assert np.array_equal(again[unique], codes[unique])
    assert np.isnan(codecs.decode(kind, again[np.isnan(values)])).all()


@pytest.mark.parametrize("kind", ROUNDED)
def test_nan_keeps_its_sign(path: Path, kind: str) -> None:
    x = np.array([np.nan, -np.nan], np.float32)
    sign = 2 ** (BITS[kind] - 1)
    expected = {"e4m3fn": [0x7F, 0xFF], "e5m2": [0x7E, 0xFE], "mxint8": [0, 0]}.get(kind, [0, sign])
    assert path.encode_codes(kind, x).tolist() == ([0x80, 0x80] if "fnuz" in kind else expected)


def test_every_payload_of_nan_is_nan(path: Path) -> None:
    bits = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF, 0x7FC00000], np.uint32)
    wide = np.array([0x7FF0000000000001, 0xFFF0000000000001, 0x7FFFFFFFFFFFFFFF], np.uint64)
    for x in (bits.view(np.float32), wide.view(np.float64)):
        for kind in FP8:
            assert np.isnan(codecs.decode(kind, path.encode_codes(kind, x))).all()
        for kind in PACKED:
            assert not np.any(path.encode_codes(kind, x) % 2 ** (BITS[kind] - 1))


@pytest.mark.parametrize("threads", [2, 7])
def test_threads_change_nothing(path: Path, threads: int) -> None:
    n = 2**19 + 2**16 + 12
    x = codec_inputs.random_finite(n)
    x = x[: len(x) // 4 * 4]
    for kind in ("e2m1", "e3m2", "e5m2"):
        for packed in (False, BITS[kind] < 8):
            codes = path.encode_codes(kind, x, packed, threads=threads)
            assert np.array_equal(codes, path.encode_codes(kind, x, packed))
            assert np.array_equal(
                path.decode_codes(kind, codes, packed=packed, threads=threads),
                path.decode_codes(kind, codes, packed=packed),
            )


@pytest.mark.parametrize("kind", ["e2m1", "e2m3", "e5m2"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("offset", [0, 4, 60])
def test_stores_past_the_cache(path: Path, kind: str, packed: bool, offset: int) -> None:
    """The same bits wherever an output begins in a line, and nothing around it is touched."""
    bits = BITS[kind] if packed else 8
    codes = np.random.default_rng(0).integers(0, 256, 3 * 700, dtype=np.uint8)
    n = codes.size * 8 // bits
    memory = np.full(4 * n + 192, 0xA5, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    out = memory[start : start + 4 * n].view(np.float32)
    path.core.decode_codes(codes, kind, out, "float32", packed, 1, path.level, 1)
    assert np.array_equal(out.view(np.uint32), path.decode_codes(kind, codes, packed=packed))
    assert (memory[:start] == 0xA5).all()
    assert (memory[start + 4 * n :] == 0xA5).all()
