"""Decoding planes: what Python hands to C and every instruction set against the reference, and the reference against
what others say."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbquant import _core, planes
from cbquant.reference import codecs
from cbquant.reference import planes as reference
from tests.paths import DTYPES, PATHS, Path, natively
from tests.planes_inputs import FLAT, GROUPED, NAMES, ROWS, TILED, Case, assert_same, decode, layouts_of, make

CASES = {fmt: layouts_of(fmt) for fmt in NAMES}


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture(params=natively(PATHS), ids=str)
def native(request: pytest.FixtureRequest) -> Path:
    """For what is the same on every set of kernels, or slow: without the emulated ones."""
    return request.param


def decoded(path: Path, case: Case, dtype: str = "float32", threads: int = 1, stream: int = -1) -> Any:
    """What a path makes of planes; the memory that it writes to is filled with something else first."""
    layout = case.layout
    out = np.full(layout.shape, 0x5A5A, DTYPES[dtype]).view("u2" if dtype == "bfloat16" else dtype)
    path.core.dequant_planes(layout.planes(), out, dtype, threads, path.level, stream)
    return out


# --- the reference ---


def test_the_reference_has_every_format() -> None:
    assert reference.names() == sorted(ROWS)
    for name, (_, code, bits, *_) in ROWS.items():
        stated = reference.CODES[name]
        assert stated == code if isinstance(stated, str) else code == "table"
        assert len(stated if not isinstance(stated, str) else codecs.values(stated)) == 2**bits


def test_tables_are_those_of_their_sources() -> None:
    """NF4 is made of normal quantiles (QLoRA, equation 4 and its code): eight above zero, seven below, scaled to 1."""
    from statistics import NormalDist

    quantile = NormalDist().inv_cdf
    offset = (1 - 1 / (2 * 15) + 1 - 1 / (2 * 16)) / 2
    above = [quantile(p) for p in np.linspace(offset, 0.5, 9)[:-1]]
    below = [-quantile(p) for p in np.linspace(offset, 0.5, 8)[:-1]]
    expected = np.sort(np.array([*above, 0.0, *below])) / max(above)
    assert np.abs(reference.NF4 - expected).max() < 2e-6
    assert reference.FP4[:8].tolist() == [np.float32(x) for x in (0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4)]
    assert np.array_equal(reference.FP4[8:], -reference.FP4[:8])
    assert np.signbit(reference.FP4[8])


def test_mxfp4_is_the_layout_of_gpt_oss() -> None:
    """Its published decoder: table[low nibble] at even places, table[high] at odd ones, ldexp by the scale - 127."""
    rng = np.random.default_rng(0)
    codes, scales = rng.integers(0, 256, (2, 5, 3, 16), np.uint8), rng.integers(0, 255, (2, 5, 3), np.uint8)
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    expected = np.empty((2, 5, 3, 32), np.float32)
    expected[..., 0::2], expected[..., 1::2] = table[codes & 15], table[codes >> 4]
    with np.errstate(over="ignore"):
        expected = np.ldexp(expected, scales.astype(np.int32)[..., None] - 127).reshape(2, 5, 96)
    assert_same(reference.dequant("mxfp4", codes, scales), expected)
    assert_same(planes.dequant("mxfp4", codes, scales), expected)


def test_mx_elements_are_those_of_ml_dtypes() -> None:
    types = {
        "mxfp8_e4m3": ml_dtypes.float8_e4m3fn,
        "mxfp8_e5m2": ml_dtypes.float8_e5m2,
        "mxfp6_e3m2": ml_dtypes.float6_e3m2fn,
        "mxfp6_e2m3": ml_dtypes.float6_e2m3fn,
    }
    scales = np.array([[100, 127, 130, 1, 0, 254, 255, 128]], np.uint8)
    for fmt, dtype in types.items():
        codes = (np.arange(256) % 2 ** ROWS[fmt][2]).astype(np.uint8)[None]
        with np.errstate(all="ignore"):
            expected = codes.view(dtype).astype(np.float32) * np.repeat(
                scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float32), 32, axis=1
            )
        assert_same(reference.dequant(fmt, codes, scales), expected)
        assert_same(planes.dequant(fmt, codes, scales), expected)


# --- what is handed to C ---


@pytest.mark.parametrize("fmt", NAMES)
def test_layouts_say_what_the_arguments_mean(fmt: str) -> None:
    for case in CASES[fmt]:
        layout = case.layout
        assert_same(decode(layout.planes()).reshape(layout.shape), case.expected())


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_layouts_of_any_shape(data: st.DataObject) -> None:
    case = data.draw(cases())
    layout = case.layout
    assert_same(decode(layout.planes()).reshape(layout.shape), case.expected())


@st.composite
def cases(draw: st.DrawFn) -> Case:
    fmt = draw(st.sampled_from(NAMES))
    lengths = st.lists(st.integers(0, 5), max_size=3)
    seed = draw(st.integers(0, 2**16))
    if fmt in FLAT:
        shape = (*draw(lengths), draw(st.integers(0, 200)))
        return make(fmt, shape, seed, block=2 * draw(st.integers(1, 35)))
    if fmt in GROUPED:
        shape = (*draw(lengths), ROWS[fmt][5] * draw(st.integers(0, 6)))
        return make(fmt, shape, seed)
    shape = (*draw(lengths), draw(st.integers(0, 20)), draw(st.integers(0, 40)))
    size = st.one_of(st.none(), st.integers(1, 50))
    return make(fmt, shape, seed, tile=draw(st.one_of(st.sampled_from(["row", "tensor"]), st.tuples(size, size))))


# --- C ---


@pytest.mark.parametrize("fmt", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_layout_decodes(path: Path, fmt: str, dtype: str) -> None:
    for case in CASES[fmt]:
        assert_same(decoded(path, case, dtype), case.expected(dtype))


@pytest.mark.parametrize("fmt", NAMES)
def test_every_code_under_every_scale(path: Path, fmt: str) -> None:
    """All bytes of codes with all scales of a byte, or with float32 of any bits."""
    kind, group = ROWS[fmt][6], ROWS[fmt][5] or 32
    scales = 256 if kind in ("e8m0", "e4m3fn") else 500
    if fmt in FLAT:
        case = make(fmt, (scales, 512), 1, block=512)
        codes = np.tile(np.arange(256, dtype=np.uint8), scales)
    else:
        case = make(fmt, (scales, 256 * 32), 1, **({"tile": (1, 32)} if fmt in TILED else {}))
        size = case.codes.shape[-1]
        codes = np.broadcast_to(np.resize(np.arange(256, dtype=np.uint8), size), (scales, size))
        if kind != "tile":
            every = np.arange(256, dtype=np.uint8)[:, None]
            case = Case(fmt, codes, np.repeat(every, 256 * 32 // group, axis=1))
    case = Case(fmt, np.ascontiguousarray(codes), case.scales, case.options)
    assert_same(decoded(path, case), case.expected())


@pytest.mark.parametrize(
    ("shape", "scales"), [((576, 7168), (5, 56)), ((1000, 256), (8, 2)), ((3, 129, 130), (3, 2, 2))], ids=str
)
@pytest.mark.parametrize("fmt", TILED)
def test_tiles_are_float64_arithmetic_rounded_once(
    path: Path, fmt: str, shape: tuple[int, ...], scales: tuple[int, ...]
) -> None:
    """The block is stated, never a guess: these sizes leave parts of tiles at their edges."""
    if path.emulated and shape[0] == 576:
        shape, scales = (300, 260), (3, 3)
    case = make(fmt, shape, 3, any_bits=False)
    assert case.scales.shape == scales
    down, across = (np.arange(length) // 128 for length in shape[-2:])
    values = codecs.values(ROWS[fmt][1])[case.codes] * case.scales.astype(np.float64)[..., down[:, None], across]
    with np.errstate(over="ignore"):
        assert_same(decoded(path, case), values.astype(np.float32))
        assert_same(decoded(path, case, "float16"), values.astype(np.float32).astype(np.float16))


@pytest.mark.parametrize("threads", [2, 7])
@pytest.mark.parametrize("fmt", NAMES)
def test_threads_change_nothing(native: Path, fmt: str, threads: int) -> None:
    options: dict[str, Any] = {"tile": (100, 130)} if fmt in TILED else {}
    for shape in ((1031, 1056), (7, 96 * 1024), (3, 333, 672)):  # more than 2^19 elements
        case = make(fmt, shape, threads, **options)
        for dtype in ("float32", "bfloat16"):
            one, many = (decoded(native, case, dtype, n) for n in (1, threads))
            assert_same(many, one)


@pytest.mark.parametrize("fmt", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 4, 60])
def test_stores_past_the_cache(native: Path, fmt: str, dtype: str, offset: int) -> None:
    """The same bits wherever an output begins in a line, and nothing around it is touched."""
    case = make(fmt, (3, 672), 5)
    layout, expected = case.layout, case.expected(dtype)
    memory = np.full(expected.nbytes + 192, 0xA5, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    out = memory[start : start + expected.nbytes].view(expected.dtype).reshape(expected.shape)
    native.core.dequant_planes(layout.planes(), out, dtype, 1, native.level, 1)
    assert_same(out, expected)
    assert (memory[:start] == 0xA5).all()
    assert (memory[start + expected.nbytes :] == 0xA5).all()


@pytest.mark.parametrize("fmt", NAMES)
def test_codes_begin_anywhere(path: Path, fmt: str) -> None:
    case = make(fmt, (5, 96), 6)
    for offset in range(1, 16):
        memory = np.empty(case.codes.size + offset, np.uint8)
        codes = memory[offset:].reshape(case.codes.shape)
        codes[:] = case.codes
        assert_same(decoded(path, Case(fmt, codes, case.scales, case.options)), case.expected())


# --- hard cases ---


def test_the_order_of_nibbles_is_that_of_the_container(path: Path) -> None:
    """0x21: GGUF's blocks have 1 at element 0 and 2 at element 16, planes both side by side."""
    first = np.array([[0x21] + [0] * 15], np.uint8)
    y = decoded(path, Case("mxfp4_planes", first, np.array([[127]], np.uint8)))
    assert y[0, :3].tolist() == [0.5, 1.0, 0.0]
    for fmt in FLAT:
        y = decoded(path, Case(fmt, first[0, :1], np.array([1], np.float32)))
        table = reference.CODES[fmt]
        assert y.tolist() == [table[2], table[1]]


def test_the_ends_of_e8m0(path: Path) -> None:
    scales = np.arange(256, dtype=np.uint8)[:, None]
    with np.errstate(over="ignore"):
        powers = np.append(np.ldexp(1.0, np.arange(255) - 127), np.nan)
    for code, value in ((2, 1.0), (4, 2.0), (1, 0.5), (7, 6.0), (8, -0.0), (15, -6.0)):
        y = decoded(path, Case("mxfp4_planes", np.full((256, 16), code * 17, np.uint8), scales))
        with np.errstate(over="ignore"):
            expected = (powers * value).astype(np.float32)
        assert_same(y[:, 0], expected)
        assert_same(y[:, 31], expected)
    y = decoded(path, Case("fp8_e4m3", np.full((256, 1), 0x38, np.uint8), scales, {"tile": (1, 1)}))
    assert_same(y[:, 0], powers.astype(np.float32))


def test_all_bytes_of_e4m3(path: Path) -> None:
    codes = np.arange(256, dtype=np.uint8)
    y = decoded(path, Case("fp8_e4m3", codes, np.float32(1)))
    assert_same(y, codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32))
    assert (y[1], y[0x7E]) == (2.0**-9, 448)
    assert np.flatnonzero(np.isnan(y)).tolist() == [0x7F, 0xFF]


def test_scales_in_e8m0_are_powers_and_not_numbers(path: Path) -> None:
    codes = np.full((130, 2), 0x38, np.uint8)
    y = decoded(path, Case("fp8_e4m3", codes, np.array([[127], [130]], np.uint8)))
    assert (y[:128] == 1).all()
    assert (y[128:] == 8).all()


def test_the_global_scale_multiplies_or_divides(path: Path) -> None:
    """One rounding each: 1/3 as a multiplier is not 3 as a divisor."""
    codes, scales = np.full((1, 8), 0x77, np.uint8), np.array([[0x7E]], np.uint8)  # 6 * 448
    for value in (3.0, 1e-3, 7e37, 1e-40):
        g = np.float32(value)
        with np.errstate(over="ignore"):
            products = {"multiplier": np.float32(2688) * g, "divisor": np.float32(2688) / g}
        for name, expected in products.items():
            case = Case("nvfp4_planes", codes, scales, {"global_scale": value, "global_scale_is": name})
            assert (decoded(path, case) == expected).all()


def test_nvfp4_scales_are_signed_and_have_nan(path: Path) -> None:
    codes = np.full((3, 8), 0x22, np.uint8)
    y = decoded(path, Case("nvfp4_planes", codes, np.array([[0xB8], [0x7F], [0xFF]], np.uint8)))
    assert (y[0] == -1).all()
    assert np.isnan(y[1:]).all()


def test_values_of_half_precision_overflow_to_infinity(path: Path) -> None:
    case = Case("fp8_e5m2", np.full((1, 3), 0x7B, np.uint8), np.float32(2))  # 57344
    assert np.isposinf(decoded(path, case, "float16")).all()
    bits = decoded(
        path, Case("fp8_e4m3", np.full(1, 0x38, np.uint8), np.array([0x3F818000], np.uint32).view("f4")), "bfloat16"
    )
    assert bits.view(np.uint16)[0] == 0x3F82


def test_zero_rows_and_columns(path: Path) -> None:
    for fmt in NAMES:
        for shape in ((0,), (0, 0), (3, 0), (0, 64), (2, 0, 64)):
            assert decoded(path, make(fmt, shape)).shape == shape


def test_the_list_of_c_is_the_list() -> None:
    assert [f.name for f in planes.formats()] == [row[0] for row in _core.plane_formats()]
    assert all(f.bits in (4, 6, 8) for f in planes.formats())
