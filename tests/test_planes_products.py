"""Products with planes: every level against float64, and what Python adds to them."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import cbquant
from cbquant import QuantTensor
from cbquant.planes._tensor import PlanesTensor
from tests.paths import PRODUCT_PATHS, Path, natively
from tests.planes_inputs import FLAT, INTEGER, NAMES, TILED, make

FLOATS = [name for name in NAMES if name not in INTEGER]
X_LIMITS = {"q8": (127, 32), "q16": (32767, 256)}
PRECISIONS = [(name, p) for name in NAMES for p in ("f32", "bf16", *(X_LIMITS if name in INTEGER else ()))]


@pytest.fixture(params=PRODUCT_PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture(params=natively(PRODUCT_PATHS), ids=str)
def native(request: pytest.FixtureRequest) -> Path:
    """For what is the same on every set of kernels, or slow: without the emulated ones."""
    return request.param


@pytest.fixture(params=NAMES)
def fmt(request: pytest.FixtureRequest) -> str:
    return request.param


def weights(fmt: str, shape: tuple[int, ...], seed: int = 0, **options: Any) -> PlanesTensor:
    """Weights about 1: scales that are no extremes, and codes that are neither NaN nor infinity."""
    case = make(fmt, shape, seed, any_bits=False, **options)
    if fmt.startswith(("fp8", "mxfp8")):
        case.codes[(case.codes & 0x7F) >= 0x7C] = 0x35
    return QuantTensor.from_planes(fmt, case.codes, case.scales, **case.options)


def multiply(path: Path, x: NDArray[Any], t: PlanesTensor, precision: str = "f32", threads: int = 1) -> Any:
    out = np.full((len(x), t.shape[0]), np.nan, np.float32)
    path.core.matmul_planes(x, "float32", t._layout.planes(), out, "float32", len(x), precision, threads, path.level)
    return out


def activations(m: int, k: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng([m, k, seed]).standard_normal((m, k), np.float32)


def error(actual: NDArray[Any], x: NDArray[Any], w: NDArray[Any]) -> float:
    """Relative to the exact product, in the Frobenius norm."""
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    return float(np.linalg.norm(actual - exact) / np.linalg.norm(exact))


def as_bf16(x: NDArray[np.float32]) -> NDArray[np.float64]:
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def as_integers(x: NDArray[np.float32], limit: int, group: int) -> NDArray[np.float64]:
    """What q8 and q16 make of x: integers under a scale for each group, as docs/products.md has it."""
    result = np.empty(x.shape, np.float64)
    for begin in range(0, x.shape[1], group):
        part = x[:, begin : begin + group]
        largest = np.abs(part).max(axis=1, keepdims=True)
        integers = np.rint(part * (np.float32(limit) / largest))
        result[:, begin : begin + group] = integers * (largest / np.float32(limit)).astype(np.float64)
    return result


# --- against float64 ---


@pytest.mark.parametrize("m", [1, 2, 5, 33])
def test_f32(native: Path, fmt: str, m: int) -> None:
    t = weights(fmt, (9, 1024 if native.emulated else 4096))
    x = activations(m, t.shape[1])
    assert error(multiply(native, x, t), x, t.dequant()) <= 1e-6


@pytest.mark.parametrize("m", [1, 3, 33])
def test_bf16_is_of_rounded_operands(native: Path, fmt: str, m: int) -> None:
    t = weights(fmt, (9, 1024), 1)
    x = activations(m, 1024)
    assert error(multiply(native, x, t, "bf16"), as_bf16(x), as_bf16(t.dequant())) <= 1e-6


@pytest.mark.parametrize("precision", X_LIMITS)
@pytest.mark.parametrize("fmt", INTEGER)
@pytest.mark.parametrize("m", [1, 3, 33])
def test_integers(path: Path, fmt: str, precision: str, m: int) -> None:
    t = weights(fmt, (9, 1024), 2)
    x = activations(m, 1024)
    assert error(multiply(path, x, t, precision), as_integers(x, *X_LIMITS[precision]), t.dequant()) <= 2e-6


@pytest.mark.parametrize("fmt", INTEGER)
@pytest.mark.parametrize("precision", X_LIMITS)
def test_integers_at_the_ends_of_their_range(native: Path, fmt: str, precision: str) -> None:
    """Every code and the largest x at once: a sum that saturates shows."""
    for code in (0x77, 0xFF, 0x80, 0x7F, 0x88, 0x81):
        t = weights(fmt, (9, 512), 3)
        t.codes[:] = code
        for sign in (1, -1):
            x = np.full((5, 512), sign, np.float32)
            w = t.dequant().astype(np.float64)
            bound = 2e-6 * np.abs(w).sum(axis=1)
            assert (np.abs(multiply(native, x, t, precision) - x @ w.T) <= bound).all()


@pytest.mark.parametrize(("fmt", "precision"), PRECISIONS)
def test_odd_shapes(path: Path, fmt: str, precision: str) -> None:
    """Rows and columns that fill no vector, panel or tile; K of grouped formats is a multiple of the group."""
    lengths = [1, 5, 37, 130, 257] if fmt in (*TILED, *FLAT) else [32, 96, 160, 1056]
    for n in (1, 2, 3, 7, 17, 130):
        for k in lengths:
            options: dict[str, Any] = {"tile": (5, 48)} if fmt in TILED else {"block": 48} if fmt in FLAT else {}
            t = weights(fmt, (n, k), n, **options)
            for m in (1, 4, 9):
                x = activations(m, k)
                w = t.dequant().astype(np.float64)
                if precision == "bf16":
                    a, w = as_bf16(x), as_bf16(t.dequant())
                else:
                    a = as_integers(x, *X_LIMITS[precision]) if precision in X_LIMITS else x.astype(np.float64)
                bound = 1e-6 * np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(w, axis=1)
                assert (np.abs(multiply(path, x, t, precision) - a @ w.T) <= bound + 1e-30).all()


@pytest.mark.parametrize("fmt", TILED)
@pytest.mark.parametrize("tile", [(128, 128), (1, 128), "row", "tensor", (None, None), (7, 3), (64, None)], ids=str)
def test_every_kind_of_tiles(native: Path, fmt: str, tile: Any) -> None:
    t = weights(fmt, (150, 300), 4, tile=tile)
    for m in (1, 6):
        x = activations(m, 300)
        assert error(multiply(native, x, t), x, t.dequant()) <= 1e-6
        assert error(multiply(native, x, t, "bf16"), as_bf16(x), as_bf16(t.dequant())) <= 1e-6


@pytest.mark.parametrize("global_scale_is", ["multiplier", "divisor"])
def test_global_scale(path: Path, global_scale_is: str) -> None:
    t = weights("nvfp4_planes", (9, 512), 5, global_scale=0.0123, global_scale_is=global_scale_is)
    for m in (1, 9):
        x = activations(m, 512)
        assert error(multiply(path, x, t), x, t.dequant()) <= 1e-6
        assert error(multiply(path, x, t, "bf16"), as_bf16(x), as_bf16(t.dequant())) <= 1e-6
        for precision, rounding in X_LIMITS.items():
            assert error(multiply(path, x, t, precision), as_integers(x, *rounding), t.dequant()) <= 2e-6


@pytest.mark.parametrize("precision", ["f32", "bf16", "q8"])
def test_nan_scales_reach_their_rows_alone(native: Path, precision: str) -> None:
    t = weights("mxfp4_planes", (20, 256), 6)
    t.scales[13, 3] = 255
    for m in (1, 5):
        is_nan = np.isnan(multiply(native, activations(m, 256), t, precision))
        assert is_nan[:, 13].all()
        assert not np.delete(is_nan, 13, axis=1).any()


@pytest.mark.parametrize(("fmt", "precision"), PRECISIONS)
def test_results_do_not_depend_on_threads_or_places(fmt: str, precision: str) -> None:
    t = weights(fmt, (1031, 768))
    for m in (1, 2, 33):
        x = activations(m, 768)
        one = cbquant.matmul(x, t, precision=precision, threads=1)
        for threads in (2, 3, 7):
            assert np.array_equal(cbquant.matmul(x, t, precision=precision, threads=threads), one)
        assert np.array_equal(cbquant.matmul(x, t[17:60], precision=precision), one[:, 17:60])
        assert np.array_equal(cbquant.matmul(x, t[::3], precision=precision), one[:, ::3])


# --- what Python adds ---


def test_ways_to_write_a_product(fmt: str) -> None:
    t, x = weights(fmt, (6, 512)), activations(3, 512)
    expected = cbquant.matmul(x, t)
    assert np.array_equal(x @ t.T, expected)
    assert np.array_equal((t @ x.T).T, expected)
    assert np.array_equal(t @ x[0], cbquant.matmul(x[0], t))
    out = np.empty((3, 6), np.float32)
    assert np.matmul(x, t.T, out=out) is out
    assert np.array_equal(out, expected)
    assert cbquant.matmul(x.reshape(3, 1, 512), t).shape == (3, 1, 6)
    assert t.T.shape == (512, 6)
    assert repr(t.T) == f"{t!r}.T"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_dtypes(fmt: str, dtype: Any) -> None:
    t, x = weights(fmt, (6, 512)), activations(3, 512).astype(dtype)
    exact = cbquant.matmul(x.astype(np.float32), t)
    with np.errstate(over="ignore"):
        rounded = {kind: exact.astype(kind) for kind in (np.float32, np.float16, ml_dtypes.bfloat16)}
    y = cbquant.matmul(x, t)
    assert y.dtype == dtype
    assert np.array_equal(y, rounded[dtype])
    for out_dtype, expected in rounded.items():
        out = np.empty((3, 6), out_dtype)
        assert np.array_equal(cbquant.matmul(x, t, out=out), expected)


def test_products_of_nothing(fmt: str) -> None:
    for shape, m in (((0, 64), 3), ((5, 0), 3), ((5, 64), 0), ((0, 0), 0)):
        y = cbquant.matmul(activations(m, shape[1]), weights(fmt, shape))
        assert y.shape == (m, shape[0])
        assert not y.any()


@pytest.mark.parametrize("fmt", FLOATS)
@pytest.mark.parametrize("precision", X_LIMITS)
def test_codes_that_are_not_integers_have_no_integer_products(fmt: str, precision: str) -> None:
    out = np.full((3, 6), 7, np.float32)
    text = f"precision: {fmt} has no integer codes, it knows f32 and bf16 only, got '{precision}'"
    with pytest.raises(ValueError, match=re.escape(text)):
        cbquant.matmul(activations(3, 512), weights(fmt, (6, 512)), precision=precision, out=out)
    with pytest.raises(ValueError, match=re.escape(text)):
        cbquant.moe_matmul(activations(3, 64), weights(fmt, (2, 6, 64)), [[0]] * 3, precision=precision)
    assert (out == 7).all()


def test_what_is_wrong_is_said(fmt: str) -> None:
    t, x = weights(fmt, (6, 512)), activations(3, 512)
    for error_type, text, call in (
        (ValueError, "x: expected a last dimension of 512 (K of the weights)", lambda: cbquant.matmul(x[:, :64], t)),
        (ValueError, "w: expected 2 dimensions (N, K), got shape (2, 6, 64)",
         lambda: cbquant.matmul(x, weights(fmt, (2, 6, 64)))),
        (TypeError, "fmt, shape: a QuantTensor has its own", lambda: cbquant.matmul(x, t, fmt)),
        (ValueError, "precision: expected one of f32, bf16, q8, q16", lambda: cbquant.matmul(x, t, precision="f64")),
        (TypeError, "w: expected a QuantTensor, got the transpose of one", lambda: cbquant.matmul(x, t.T)),
        (ValueError, "experts: expected 3 dimensions (E, N, K)", lambda: cbquant.moe_matmul(x, t, [[0]] * 3)),
    ):  # fmt: skip
        with pytest.raises(error_type, match=re.escape(text)):
            call()


def test_out_has_memory_of_its_own() -> None:
    memory = np.full(4 * 32 * 8, 127, np.uint8)
    t = QuantTensor.from_planes("mxint8", memory[: 8 * 32].reshape(8, 32), np.full((8, 1), 127, np.uint8))
    with pytest.raises(ValueError, match="out: expected memory of its own, it overlaps x or w"):
        cbquant.matmul(activations(1, 32), t, out=memory[:32].view(np.float32).reshape(1, 8))


# --- experts ---

IDS = np.array([[0, 3], [3, -1], [3, 0], [-1, -1], [4, 4]])


@pytest.mark.parametrize(("fmt", "precision"), PRECISIONS)
def test_each_token_with_its_experts(fmt: str, precision: str) -> None:
    experts, x = weights(fmt, (5, 6, 256)), activations(5, 256)
    expected = np.zeros((*IDS.shape, 6), np.float32)
    for place, e in np.ndenumerate(IDS):
        if e >= 0:
            expected[place] = cbquant.matmul(x[place[0]], experts[e], precision=precision)
    y = cbquant.moe_matmul(x, experts, IDS, precision=precision)
    assert np.allclose(y, expected, rtol=1e-5, atol=1e-4)
    assert not y[3].any()
    factors = np.random.default_rng(0).random(IDS.shape)
    total = cbquant.moe_matmul(x, experts, IDS, factors, precision=precision)
    assert np.allclose(total, (factors[..., None] * expected).sum(axis=1), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("tile", [(128, 128), (4, 100), "row", "tensor", (None, None)], ids=str)
def test_experts_under_every_kind_of_tiles(tile: Any) -> None:
    experts, x = weights("fp8_e4m3", (5, 130, 300), tile=tile), activations(5, 300)
    y = cbquant.moe_matmul(x, experts, IDS)
    for place, e in np.ndenumerate(IDS):
        if e >= 0:
            assert error(y[place], x[place[0]], experts[e].dequant()) < 1e-6


def test_experts_that_nobody_chose_are_not_touched() -> None:
    experts, x = weights("mxfp4_planes", (5, 6, 64)), activations(5, 64)
    before = cbquant.moe_matmul(x, experts, IDS)
    experts.scales[1:3] = 255
    assert np.array_equal(cbquant.moe_matmul(x, experts, IDS), before)


def test_experts_of_runs_that_are_not_whole_say_so() -> None:
    experts = weights("nf4", (2, 3, 10), block=64)
    with pytest.raises(ValueError, match="nf4: a scale belongs to 64 elements in order, and those of axis 0"):
        cbquant.moe_matmul(activations(1, 10), experts, [[1]])
