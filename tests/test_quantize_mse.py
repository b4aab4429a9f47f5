"""`quantize(method="mse")`: no block is worse than that of the reference, most are better; what its bytes depend on."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import cbquant
from tests import encode_inputs
from tests.paths import ENCODED_FORMATS, PATHS, Path

Floats = NDArray[np.float32]
FORMATS = {f.name: f for f in ENCODED_FORMATS}
#: Their codes are rows of a grid, which stay.
GRIDS = [name for name in FORMATS if name.startswith(("iq1", "iq2", "iq3"))]


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def weights_for(fmt: str, imatrix: Floats | None, k: int) -> Floats | None:
    return np.ones(k, np.float32) if imatrix is None and FORMATS[fmt].needs_imatrix else imatrix


def encode_both(x: Floats, fmt: str, imatrix: Floats | None = None) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The reference's blocks, and the improved ones."""
    weights = weights_for(fmt, imatrix, x.shape[-1])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="imatrix: all weights are zero")
        return cbquant.quantize(x, fmt, weights), cbquant.quantize(x, fmt, weights, method="mse")


def block_errors(
    x: Floats, blocks: NDArray[np.uint8], fmt: str, imatrix: Floats | None = None, size: int | None = None
) -> NDArray[np.float64]:
    """The weighted squared error of each block (or of each `size` elements), in float64."""
    decoded = cbquant.dequant(blocks, fmt).astype(np.float64)
    with np.errstate(invalid="ignore"):
        errors = (x.astype(np.float64) - decoded) ** 2 * (1 if imatrix is None else imatrix.astype(np.float64))
    sums: NDArray[np.float64] = errors.reshape(-1, size or FORMATS[fmt].elements).sum(axis=1)
    return sums


def relative_gain(x: Floats, fmt: str, imatrix: Floats | None = None) -> float:
    """How much of the root of the mean squared error is gone."""
    before, after = (block_errors(x, blocks, fmt, imatrix).sum() for blocks in encode_both(x, fmt, imatrix))
    return 1 - float(np.sqrt(after / before))


def check_not_worse(x: Floats, fmt: str, imatrix: Floats | None) -> None:
    """Where the reference's block decodes to no finite numbers, the other one does."""
    reference, improved = (block_errors(x, blocks, fmt, imatrix) for blocks in encode_both(x, fmt, imatrix))
    weights = np.ones(x.shape[1]) if imatrix is None else imatrix
    counts = np.tile(weights.reshape(-1, FORMATS[fmt].elements).any(axis=1), len(x))
    assert np.isfinite(improved[counts]).all()
    assert (improved <= reference)[np.isfinite(reference)].all()


# --- errors ---


@pytest.mark.parametrize("fmt", FORMATS)
def test_no_block_is_worse(fmt: str) -> None:
    f = FORMATS[fmt]
    for n, k in ((7, f.elements), (3, 768 // f.elements * f.elements)):
        for imatrix in encode_inputs.importance(k).values():
            for x in encode_inputs.rows(n, k).values():
                check_not_worse(x, fmt, imatrix)


@pytest.mark.parametrize("fmt", FORMATS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_block_of_any_floats_is_worse(fmt: str, data: st.DataObject) -> None:
    f = FORMATS[fmt]
    most = float(np.float32(2.0**20 if fmt in GRIDS else 3e38))
    few = data.draw(st.lists(st.floats(width=32, min_value=-most, max_value=most), min_size=1, max_size=12))
    picks = np.random.default_rng(data.draw(st.integers(0, 2**32))).integers(0, len(few), (2, 2 * f.elements))
    x = np.array(few, np.float32)[picks]
    which = data.draw(st.sampled_from(["none", "random", "half zero", "mixed exponents"]))
    check_not_worse(x, fmt, encode_inputs.importance(x.shape[1])[which])


#: What is gained on Gaussian rows, at least, beyond the 2 % of all others.
FLOORS = {
    **dict.fromkeys(["q2_0", "tq1_0", "tq2_0"], 0.4),  # scales that nothing exceeds
    **dict.fromkeys(["q2_k", "q4_1", "q5_1"], 0.1),  # ranges that nothing exceeds; minimums of four bits
    **dict.fromkeys(["q4_0", "q5_0", "q8_0", "q5_k"], 0.045),
    **dict.fromkeys(["iq1_s", "iq2_s", "iq3_s"], 0.055),
    "q1_0": 0.0,  # the mean of the magnitudes cannot be bettered
    "iq1_m": 0.15,
    "nvfp4": 0.12,  # a byte is rounded, whatever it costs
    "iq4_nl": 0.03,
    "iq4_xs": 0.03,
    "mxfp4": 0.025,  # powers of two, rounded down
}


@pytest.mark.parametrize("fmt", FORMATS)
def test_gain_on_gaussian_rows(fmt: str) -> None:
    x = encode_inputs.rows(16, 4096)["gauss"]
    assert relative_gain(x, fmt) >= FLOORS.get(fmt, 0.02)
    assert relative_gain(x, fmt, encode_inputs.importance(4096)["random"]) >= (0.0025 if fmt == "q1_0" else 0.018)


@pytest.mark.parametrize(("low", "high", "gain"), [(1500, 1600, 0.3), (2200, 2600, 0.22)])
def test_nvfp4_beyond_the_scale_248(low: float, high: float, gain: float) -> None:
    """The reference takes the scale 448 for all that would need 248 or more."""
    x = encode_inputs.rows(40, 1024)["gauss"].reshape(-1, 16)
    x *= np.linspace(low, high, len(x), dtype=np.float32)[:, None] / np.abs(x).max(axis=1, keepdims=True)
    assert relative_gain(x.reshape(40, 1024), "nvfp4") > gain


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
SCALES = {
    "mxfp4": 2.0 ** np.arange(-127, 128),
    "nvfp4": np.array([b * 2.0**-9 if b < 8 else (8 + b % 8) * 2.0 ** (b // 8 - 10) for b in range(127)]),
}


@pytest.mark.parametrize("fmt", SCALES)
@pytest.mark.parametrize("weighted", [False, True])
def test_no_other_scale_is_better(fmt: str, weighted: bool) -> None:
    """Formats with a byte for a scale, against all bytes with the nearest codes."""
    x = encode_inputs.rows(8, 512)["laplace"]
    imatrix = encode_inputs.importance(512)["random"] if weighted else None
    group = FORMATS[fmt].group
    _, blocks = encode_both(x, fmt, imatrix)
    found = block_errors(x, blocks, fmt, imatrix, group)
    best = np.full(len(found), np.inf)
    for scale in SCALES[fmt]:
        off = np.abs(np.abs(x.astype(np.float64))[..., None] - scale * E2M1).min(axis=-1) ** 2
        best = np.minimum(best, (off * (1 if imatrix is None else imatrix)).reshape(-1, group).sum(axis=1))
    np.testing.assert_allclose(found, best, rtol=1e-9)


def test_q1_0_has_the_weighted_mean_of_the_magnitudes() -> None:
    x = encode_inputs.rows(8, 256)["gauss"]
    imatrix = encode_inputs.importance(256)["random"]
    assert imatrix is not None
    _, blocks = encode_both(x, "q1_0", imatrix)
    magnitudes = np.abs(cbquant.dequant(blocks, "q1_0")).reshape(8, 2, 128)[..., 0]
    wanted = np.average(np.abs(x).reshape(8, 2, 128), axis=2, weights=np.tile(imatrix.reshape(1, 2, 128), (8, 1, 1)))
    assert (magnitudes == wanted.astype(np.float16)).all()


@pytest.mark.parametrize("fmt", FORMATS)
def test_weights_are_heeded(fmt: str) -> None:
    x = encode_inputs.rows(8, 1024)["laplace"]
    imatrix = encode_inputs.importance(1024)["mixed exponents"]
    _, blind = encode_both(x, fmt, np.ones(1024, np.float32))
    _, weighted = encode_both(x, fmt, imatrix)
    assert block_errors(x, weighted, fmt, imatrix).sum() < 0.97 * block_errors(x, blind, fmt, imatrix).sum()


# --- what stays ---


@pytest.mark.parametrize("fmt", GRIDS)
def test_grids_keep_their_rows(fmt: str) -> None:
    """Within a group, decoded values keep their ratios."""
    x = encode_inputs.rows(8, 512)["gauss"]
    before, after = (cbquant.dequant(blocks, fmt).reshape(-1, FORMATS[fmt].group) for blocks in encode_both(x, fmt))
    assert not np.array_equal(before, after)
    np.testing.assert_allclose(after / after[:, :1], before / before[:, :1], rtol=1e-6)


def test_codes_stay_in_their_range() -> None:
    """-128 of q8_0 and the fourth code of tq2_0 decode, but no encoder writes them."""
    for x in encode_inputs.rows(8, 512).values():
        _, blocks = encode_both(x, "q8_0")
        assert (blocks.reshape(-1, 34)[:, 2:].view(np.int8) >= -127).all()
        for fmt in ("tq1_0", "tq2_0"):
            values = cbquant.dequant(encode_both(x, fmt)[1], fmt).reshape(-1, 256)
            assert (np.sort(np.abs(values), axis=1)[:, -1:] == np.abs(values))[values != 0].all()


@pytest.mark.parametrize("fmt", FORMATS)
def test_what_is_exact_stays(fmt: str) -> None:
    x = encode_inputs.rows(4, 512)
    for zeros in (x["zeros"], x["zeros of both signs"]):
        reference, improved = encode_both(zeros, fmt)
        exact = block_errors(zeros, reference, fmt) == 0
        size = FORMATS[fmt].bytes
        assert np.array_equal(reference.reshape(-1, size)[exact], improved.reshape(-1, size)[exact])


@pytest.mark.parametrize("fmt", FORMATS)
def test_allowed_nan_harms_nothing_else(fmt: str) -> None:
    """A block with NaN or infinity is the reference's; the others are as if it were not there."""
    f = FORMATS[fmt]
    x = encode_inputs.rows(40, 2 * f.elements)["gauss"]
    broken = x.copy()
    broken[3, :: f.elements - 1] = np.nan
    broken[11, 5], broken[12], broken[13] = np.inf, -np.inf, np.nan
    hit = ~np.isfinite(broken).reshape(-1, f.elements).all(axis=1)
    reference = cbquant.quantize(broken, fmt, "ones", nonfinite="allow")
    actual = cbquant.quantize(broken, fmt, "ones", nonfinite="allow", method="mse")
    assert np.array_equal(actual.reshape(-1, f.bytes)[hit], reference.reshape(-1, f.bytes)[hit])
    clean = [i for i in range(40) if i not in (3, 11, 12, 13)]
    assert np.array_equal(actual[clean], cbquant.quantize(x, fmt, "ones", method="mse")[clean])


def test_beyond_the_largest_scale() -> None:
    """The reference's f16 scale is infinite there, and the block NaN; the largest finite one is nearer."""
    x = encode_inputs.rows(4, 512)["large"]
    for fmt in ("q4_0", "q8_0"):
        reference, improved = (cbquant.dequant(blocks, fmt) for blocks in encode_both(x, fmt))
        assert not np.isfinite(reference).all()
        assert np.isfinite(improved).all()


# --- what the bytes depend on ---


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_path_gives_the_same_bytes(path: Path, fmt: str) -> None:
    f = FORMATS[fmt]
    k = 3 * f.elements if f.elements == 256 else 288 // f.elements * f.elements
    for imatrix in (None, encode_inputs.importance(k)["random"]):
        weights = weights_for(fmt, imatrix, k)
        for name, x in encode_inputs.rows(7, k, seed=1).items():
            if fmt in GRIDS and name == "large":  # there the reference's bytes differ too
                continue
            out = np.full((7, k // f.elements * f.bytes), 0xA5, np.uint8)
            path.core.quantize(x, "f32", fmt, out, *x.shape, weights, False, 1, path.level, True)
            assert np.array_equal(out, cbquant.quantize(x, fmt, weights, method="mse")), name


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("weighted", [False, True])
def test_bytes_do_not_depend_on_threads(fmt: str, weighted: bool) -> None:
    f = FORMATS[fmt]
    k = 4 * 256 + (256 if f.elements == 256 else f.elements)
    x = encode_inputs.rows(67, k)["gauss"]
    imatrix = weights_for(fmt, encode_inputs.importance(k)["random"] if weighted else None, k)
    one = cbquant.quantize(x, fmt, imatrix, method="mse", threads=1)
    for threads in (2, 7):
        assert np.array_equal(cbquant.quantize(x, fmt, imatrix, method="mse", threads=threads), one)


@pytest.mark.parametrize("fmt", ["q4_0", "q2_k", "nvfp4"])
def test_other_types_are_rounded_to_float32_first(fmt: str) -> None:
    x = encode_inputs.rows(9, 512)["gauss"]
    for dtype in (np.float64, np.float16, ml_dtypes.bfloat16):
        other = (x * 1.001).astype(dtype)
        expected = cbquant.quantize(other.astype(np.float32), fmt, method="mse")
        assert np.array_equal(cbquant.quantize(other, fmt, method="mse"), expected)
