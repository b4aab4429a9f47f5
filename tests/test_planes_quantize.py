"""`cbquant.planes.quantize`: each rule for scales, the nearest codes under them, and what it refuses."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from cbquant import QuantTensor, planes
from cbquant.planes import _checks, _quantize
from cbquant.reference import bfloat16_bits, codecs
from cbquant.reference import planes as reference
from tests.paths import PATHS, Path, natively
from tests.planes_inputs import FLAT, GROUPED, INTEGER, NAMES, ROWS, TILED, assert_same

MX = [name for name in GROUPED if ROWS[name][6] == "e8m0"]
LARGEST = {"e4m3fn": 448.0, "e5m2": 57344.0}


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture(params=natively(PATHS), ids=str)
def native(request: pytest.FixtureRequest) -> Path:
    """For what is the same on every set of kernels, or slow: without the emulated ones."""
    return request.param


@pytest.fixture(params=NAMES)
def fmt(request: pytest.FixtureRequest) -> str:
    return request.param


def numbers(shape: tuple[int, ...], seed: int = 0) -> NDArray[np.float32]:
    """Numbers whose sizes differ from group to group."""
    rng = np.random.default_rng([seed, *shape])
    x = rng.standard_normal(shape, np.float32) * np.exp2(
        rng.integers(-8, 9, (*shape[:-1], -(-shape[-1] // 16)))
    ).repeat(16, axis=-1)[..., : shape[-1]].astype(np.float32)
    x[rng.random(shape) < 0.02] = 0
    return x


def encode(path: Path, x: NDArray[Any], fmt: str, threads: int = 1, **options: Any) -> planes.Planes:
    """As `quantize`, on a path; the memory that is written to is filled with something else first."""
    f = planes._formats.get(fmt)
    dtype = _quantize._scale_dtype(f, options.get("scale_dtype", "float32"))
    operation = _checks.GLOBAL_SCALES[options.get("global_scale_is", "multiplier")]
    layout = _quantize._empty(
        f, x.shape, options.get("tile"), options.get("block", 64), options.get("packed", False), dtype, operation
    )
    for array in (layout.codes, layout.scales.view(np.uint8)):
        array[...] = 0xA5
    source = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}[x.dtype.name]
    scale = path.core.quantize_planes(x, source, layout.planes(), threads, path.level)
    return planes.Planes(layout.codes, layout.scales, scale if layout.global_op else None)


def decode(fmt: str, found: planes.Planes, shape: tuple[int, ...], **options: Any) -> NDArray[np.float32]:
    options.pop("scale_dtype", None)
    if fmt in FLAT:
        options["shape"] = shape
    return reference.dequant(fmt, found.codes, found.scales, global_scale=found.global_scale, **options)


def largest(x: NDArray[Any], columns: int, rows: int = 1) -> NDArray[np.float32]:
    """Of each tile of a matrix."""
    size = np.abs(x.astype(np.float32))
    down, across = (-length % size for length, size in zip(x.shape, (rows, columns), strict=True))
    size = np.pad(size, ((0, down), (0, across)))
    return size.reshape(size.shape[0] // rows, rows, size.shape[1] // columns, columns).max(axis=(1, 3))


def as_stored(scales: NDArray[np.float32], dtype: str) -> NDArray[np.float32]:
    """Rounded to that type."""
    if dtype == "bfloat16":
        return (bfloat16_bits(scales).astype(np.uint32) << 16).view(np.float32)
    return scales.astype(np.float16).astype(np.float32) if dtype == "float16" else scales


def all_values(fmt: str) -> NDArray[np.float64]:
    """The finite values that a code may have; mxint8 does not use -128."""
    stated = reference.CODES[fmt]
    values = codecs.values(stated) if isinstance(stated, str) else stated.astype(np.float64)
    values = values[np.isfinite(values)]
    return values[values > -2] if fmt == "mxint8" else values


def assert_nearest(fmt: str, x: NDArray[Any], y: NDArray[np.float32], scales: NDArray[Any]) -> None:
    """No code under its scale is nearer to x than y is, but for the last bits of a quotient in float32."""
    places = np.sort(all_values(fmt))
    with np.errstate(all="ignore"):
        ratio = np.where(scales == 0, 0, x.astype(np.float64) / scales)
    place = np.clip(np.searchsorted(places, ratio), 1, len(places) - 1)
    best = np.minimum(np.abs(places[place] - ratio), np.abs(places[place - 1] - ratio)) * scales
    slack = 2.0**-23 * (np.abs(x) + np.abs(y)) + 2.0**-149
    assert (np.abs(x.astype(np.float64) - y) <= best + slack)[scales > 0].all()
    assert (y[np.broadcast_to(scales == 0, y.shape)] == 0).all()


# --- the rules ---


@pytest.mark.parametrize("fmt", MX)
@pytest.mark.parametrize("packed", [False, True])
def test_mx_scales_are_powers_by_floor(path: Path, fmt: str, packed: bool) -> None:
    if packed and ROWS[fmt][2] == 8:
        packed = False
    for shape in ((1, 32), (9, 96), (3, 1056)):
        x = numbers(shape)
        found = encode(path, x, fmt, packed=packed)
        kind = ROWS[fmt][1]
        emax = int(np.floor(np.log2(codecs.magnitudes(kind)[-1])))
        expected = codecs.encode_scale(largest(x, 32), "floor", emax=emax)
        assert np.array_equal(found.scales, expected)
        scales = codecs.decode("e8m0", expected).repeat(32, axis=1)
        y = decode(fmt, found, shape, packed=packed)
        assert_nearest(fmt, x, y, scales.astype(np.float64))
        with np.errstate(over="ignore"):
            assert_same(y, (codecs.decode(kind, codecs.encode(kind, x / scales)) * scales).astype(np.float32))


@pytest.mark.parametrize("scale_dtype", ["float32", "float16", "bfloat16", "e8m0"])
@pytest.mark.parametrize("fmt", TILED)
def test_fp8_scales_are_the_largest_by_the_largest(path: Path, fmt: str, scale_dtype: str) -> None:
    kind = ROWS[fmt][1]
    for shape, tile in (((9, 300), (1, 128)), ((130, 257), (128, 128)), ((7, 40), (3, 5)), ((6, 7), (None, None))):
        x = numbers(shape)
        rows, columns = (part or length for part, length in zip(tile, shape, strict=True))
        found = encode(path, x, fmt, tile=tile, scale_dtype=scale_dtype)
        amax = largest(x, columns, rows)
        expected = as_stored(amax / np.float32(LARGEST[kind]), scale_dtype)
        if scale_dtype == "e8m0":
            emax = {"e4m3fn": 8, "e5m2": 15}[kind]
            expected = codecs.decode("e8m0", codecs.encode_scale(amax, "floor", emax=emax))
        stored = codecs.decode("e8m0", found.scales) if scale_dtype == "e8m0" else found.scales.astype(np.float32)
        assert_same(stored, expected)
        each = expected.repeat(rows, axis=0)[: shape[0]].repeat(columns, axis=1)[:, : shape[1]]
        y = decode(fmt, found, shape, tile=tile)
        assert_nearest(fmt, x, y, each.astype(np.float64))


@pytest.mark.parametrize("scale_dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("fmt", FLAT)
def test_absmax(path: Path, fmt: str, scale_dtype: str) -> None:
    for shape, block in (((1,), 64), ((65,), 64), ((5, 7), 32), ((3, 128), 64), ((2, 3, 65), 6), ((4097,), 4096)):
        x = numbers(shape)
        found = encode(path, x, fmt, block=block, scale_dtype=scale_dtype)
        flat = np.pad(x.reshape(-1), (0, -x.size % block)).reshape(-1, block)
        expected = as_stored(np.abs(flat).max(axis=1), scale_dtype)
        assert_same(found.scales.astype(np.float32), expected)
        y = decode(fmt, found, shape, block=block)
        assert_nearest(fmt, x, y, expected.repeat(block)[: x.size].reshape(shape).astype(np.float64))
        if x.size % 2:
            assert reference.CODES[fmt][found.codes.reshape(-1)[-1] & 15] == 0  # type: ignore[index]


@pytest.mark.parametrize("global_scale_is", ["multiplier", "divisor"])
def test_nvfp4(path: Path, global_scale_is: str) -> None:
    for shape in ((1, 16), (9, 48), (3, 1040)):
        x = numbers(shape)
        found = encode(path, x, "nvfp4", global_scale_is=global_scale_is)
        multiplier = np.float32(np.abs(x).max()) / np.float32(448 * 6)
        stated = multiplier if global_scale_is == "multiplier" else np.float32(1) / multiplier
        assert found.global_scale == pytest.approx(float(stated), rel=2.0**-23)
        assert found.global_scale == float(np.float32(found.global_scale))
        factor = found.global_scale if global_scale_is == "multiplier" else 1 / found.global_scale
        scales = codecs.decode("e4m3fn", found.scales).astype(np.float64)
        wanted = largest(x, 16).astype(np.float64) / 6 / factor
        near = [codecs.decode("e4m3fn", codecs.encode("e4m3fn", wanted * (1 + e))) for e in (-1e-6, 0, 1e-6)]
        assert np.logical_or.reduce([scales == values for values in near]).all()
        assert scales.max() == 448
        y = decode("nvfp4_planes", found, shape, global_scale_is=global_scale_is)
        assert_nearest("nvfp4_planes", x, y, (scales * factor).repeat(16, axis=1))


@pytest.mark.parametrize("global_scale_is", ["multiplier", "divisor"])
@pytest.mark.parametrize("amax", [1e-42, 2e-40, 7.8e-36, 7.9e-36])
def test_nvfp4_of_tiny_tensors(native: Path, global_scale_is: str, amax: float) -> None:
    x = np.full((1, 16), amax, np.float32)
    found = encode(native, x, "nvfp4", global_scale_is=global_scale_is)
    assert np.isfinite(found.global_scale)
    y = decode("nvfp4_planes", found, x.shape, global_scale_is=global_scale_is)
    step = 6 * 2.0**-126 * 2.0**-9  # of the largest code under the smallest scales of a block
    assert (np.abs(y - x) <= np.maximum(x / 16, step)).all()


# --- what holds for all ---


def test_numbers_that_have_codes_come_back(path: Path, fmt: str) -> None:
    """A tensor of the format's own numbers, with its largest one under each scale, loses nothing."""
    rng = np.random.default_rng(0)
    values = all_values(fmt)
    x = rng.choice(values, (8, 128))
    x[:, ::16] = values.max()
    if fmt not in INTEGER and fmt not in ("nf4", "fp4"):
        x = np.where(np.abs(x) < values.max() * 2.0**-8, 0, x)
    x = (x * 2.0 ** rng.integers(-3, 3, (8, 1))).astype(np.float32)
    options: dict[str, Any] = {"tile": (1, 32)} if fmt in TILED else {}
    found = encode(path, x, fmt, **options)
    y = decode(fmt, found, x.shape, **options)
    assert np.array_equal(y, x) or (fmt == "nvfp4_planes" and np.allclose(y, x, rtol=2e-7, atol=0))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16], ids=lambda d: np.dtype(d).name)
def test_other_types_of_numbers(native: Path, fmt: str, dtype: Any) -> None:
    x = (np.random.default_rng(1).standard_normal((5, 192)) * 3).astype(dtype)
    found, expected = encode(native, x, fmt), encode(native, x.astype(np.float32), fmt)
    assert np.array_equal(found.codes, expected.codes)
    assert np.array_equal(found.scales, expected.scales)
    assert found.global_scale == expected.global_scale


@pytest.mark.parametrize("threads", [2, 7])
def test_threads_change_nothing(native: Path, fmt: str, threads: int) -> None:
    for shape in ((1031, 1056), (7, 96 * 1024)):
        x = numbers(shape)
        one, many = (encode(native, x, fmt, n) for n in (1, threads))
        assert np.array_equal(one.codes, many.codes)
        assert np.array_equal(one.scales, many.scales)
        assert one.global_scale == many.global_scale


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-45, 1e-40, 1e-38, 1e-36, 1e-20, 1e30, 3e38])
def test_zero_tiny_and_huge_numbers_decode_finite(native: Path, fmt: str, value: float) -> None:
    x = np.zeros((3, 128), np.float32)
    x[1, :64] = value
    x[1, 1] = -value
    found = encode(native, x, fmt)
    with np.errstate(over="ignore"):
        y = decode(fmt, found, x.shape)
    assert np.isfinite(y).all()
    assert (y[0] == 0).all()
    assert (y[2] == 0).all()
    assert np.abs(y - x).max() <= max(0.26 * value, 3e-38 if fmt in GROUPED else 1e-44)


def test_all_zeros(native: Path, fmt: str) -> None:
    for shape in ((2, 64), (0, 64), (3, 0)):
        x = np.zeros(shape, np.float32)
        found = encode(native, x, fmt)
        assert found.global_scale == (1.0 if fmt == "nvfp4_planes" else None)
        assert not decode(fmt, found, shape).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_nan_and_infinity_are_refused_with_their_place(native: Path, fmt: str, bad: float, dtype: Any) -> None:
    x = np.ones((4, 96), dtype)
    for row, column in ((0, 0), (2, 37), (3, 95)):
        wrong = x.copy()
        wrong[row, column] = bad
        wrong[3, 95] = bad
        layout = _quantize._empty(
            planes._formats.get(fmt), x.shape, None, 64, False,
            _quantize._scale_dtype(planes._formats.get(fmt), "float32"), 1,
        )  # fmt: skip
        source = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}[np.dtype(dtype).name]
        with pytest.raises(ValueError, match=rf"row {row}\b.*column {column}\b"):
            native.core.quantize_planes(wrong, source, layout.planes(), 1, native.level)


def test_float64_beyond_float32_is_refused(fmt: str) -> None:
    x = np.ones((2, 64))
    x[1, 3] = 1e300
    with pytest.raises(ValueError, match=r"row 1\b.*column 3\b"):
        planes.quantize(x, fmt)


@settings(deadline=None, max_examples=200)
@given(
    fmt=st.sampled_from(NAMES),
    x=hnp.arrays(np.float32, (2, 64), elements=st.floats(-(2.0**100), 2.0**100, width=32)),
)
def test_any_finite_numbers(fmt: str, x: NDArray[np.float32]) -> None:
    """Nothing infinite comes out, and no error beyond a step of the format under the largest number."""
    found = planes.quantize(x, fmt)
    y = decode(fmt, found, x.shape)
    assert np.isfinite(y).all()
    assert np.abs(y - x).max() <= np.abs(x).max() * 0.26 + 1e-37


# --- what Python adds ---

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "mxfp4_planes": ((2, 3, 4, 16), (2, 3, 4)),
    "nvfp4_planes": ((2, 3, 64), (2, 3, 8)),
    "fp8_e4m3": ((2, 3, 128), (2, 1, 1)),
    "fp8_e5m2": ((2, 3, 128), (2, 1, 1)),
    "nf4": ((2, 3, 64), (12,)),
    "fp4": ((2, 3, 64), (12,)),
}


def test_shapes_and_types_of_the_result(fmt: str) -> None:
    x = numbers((2, 3, 128))
    found = planes.quantize(x, fmt, threads=2)
    codes, scales = SHAPES.get(fmt, ((2, 3, 128), (2, 3, 4)))
    assert (found.codes.shape, found.scales.shape) == (codes, scales)
    assert found.codes.dtype == np.uint8
    assert found.scales.dtype == (np.float32 if fmt in (*FLAT, *TILED) else np.uint8)
    y = planes.dequant(fmt, *found[:2], global_scale=found.global_scale)
    assert y.shape == x.shape
    t = QuantTensor.from_planes(fmt, *found[:2], global_scale=found.global_scale)
    assert_same(t.dequant(), y)
    again = planes.quantize(np.asfortranarray(x), fmt)
    assert np.array_equal(again.codes, found.codes)
    assert np.array_equal(planes.quantize(x[::-1, ::2], fmt).codes, planes.quantize(x[::-1, ::2].copy(), fmt).codes)


def test_an_odd_number_of_codes_is_flat() -> None:
    x = numbers((3, 5))
    found = planes.quantize(x, "nf4")
    assert found.codes.shape == (8,)
    assert planes.dequant("nf4", *found[:2], shape=(3, 5)).shape == (3, 5)


def test_packed() -> None:
    for fmt in ("mxfp6_e3m2", "mxfp6_e2m3"):
        plain, packed = (planes.quantize(numbers((3, 64)), fmt, packed=p) for p in (False, True))
        assert packed.codes.shape == (3, 48)
        assert np.array_equal(codecs.unpack(packed.codes, 6), plain.codes)


def test_types_of_scales() -> None:
    x = numbers((3, 64))
    for given_type, dtype in (
        (np.float16, np.float16),
        ("bfloat16", ml_dtypes.bfloat16),
        (ml_dtypes.bfloat16, ml_dtypes.bfloat16),
        (ml_dtypes.float8_e8m0fnu, np.uint8),
        ("e8m0", np.uint8),
    ):
        found = planes.quantize(x, "fp8_e4m3", scale_dtype=given_type)
        assert found.scales.dtype == dtype
        assert np.isfinite(planes.dequant("fp8_e4m3", *found[:2])).all()


@pytest.mark.parametrize("fmt", [*TILED, *FLAT])
def test_scales_that_their_type_cannot_hold_are_refused(fmt: str) -> None:
    x = np.ones((3, 64), np.float32)
    x[1, 2] = 65520 * LARGEST.get(ROWS[fmt][1], 1)
    planes.quantize(x, fmt)
    refused = r"x: a magnitude of [0-9.e+]+ needs a scale that the scales' type cannot hold"
    with pytest.raises(ValueError, match=refused):
        planes.quantize(x, fmt, scale_dtype="float16")
    x[1, 2] = 3.4e38
    if fmt in FLAT:
        with pytest.raises(ValueError, match=refused):
            planes.quantize(x, fmt, scale_dtype="bfloat16")


@pytest.mark.parametrize(
    ("error", "text", "arguments", "options"),
    [
        (ValueError, "fmt: unknown format of planes 'q5'", ("x", "q5"), {}),
        (ValueError, "x: k=40 is not a multiple of 32 elements under one scale (mxint8)", ("x", "mxint8"), {}),
        (ValueError, "x: k=40 is not a multiple of 16 elements under one scale (nvfp4_planes)", ("x", "nvfp4"), {}),
        (TypeError, "x: expected float32, float64, float16, bfloat16, got int64", (np.zeros(3, int), "nf4"), {}),
        (ValueError, "x: expected native byte order, got dtype >f4", (np.zeros(3, ">f4"), "nf4"), {}),
        (ValueError, "x: expected at least one dimension, got ()", (np.float32(1), "nf4"), {}),
        (TypeError, "x: expected a plain array, got a masked one", (np.ma.masked_array([1.0]), "nf4"), {}),
        (ValueError, "tile: nf4 has none", ("x", "nf4"), {"tile": (1, 1)}),
        (ValueError, "block: fp8_e4m3 has none", ("x", "fp8_e4m3"), {"block": 32}),
        (ValueError, "block: expected an even number", ("x", "nf4"), {"block": 33}),
        (ValueError, "packed: the codes of fp8_e4m3 are whole bytes", ("x", "fp8_e4m3"), {"packed": True}),
        (ValueError, "scale_dtype: the scales of mxint8 are bytes of e8m0, got 'float16'", ("x", "mxint8"),
         {"scale_dtype": "float16"}),
        (ValueError, "scale_dtype: expected one of float32, float16, bfloat16, got 'e8m0'", ("x", "nf4"),
         {"scale_dtype": "e8m0"}),
        (ValueError, "scale_dtype: expected one of float32, float16, bfloat16, e8m0, got 'float64'", ("x", "fp8_e4m3"),
         {"scale_dtype": float}),
        (TypeError, "scale_dtype: expected the name of a type, got <object object", ("x", "fp8_e4m3"),
         {"scale_dtype": object()}),
        (ValueError, "global_scale_is: expected one of multiplier, divisor", ("x", "nvfp4"), {"global_scale_is": "x"}),
        (ValueError, "threads: expected 1 to 512, got 0", ("x", "nf4"), {"threads": 0}),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(error: type[Exception], text: str, arguments: tuple[Any, ...], options: Any) -> None:
    x, fmt = arguments
    with pytest.raises(error, match=re.escape(text)):
        planes.quantize(numbers((2, 40)) if isinstance(x, str) else x, fmt, **options)
