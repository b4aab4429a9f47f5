"""Products on every path against float64: the bounds that each precision promises."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import cbquant
from tests.paths import BLOCK_FORMATS, PRODUCT_PATHS, Path

FORMATS = [f.name for f in cbquant.formats()]
BLOCKS = [f.name for f in BLOCK_FORMATS]
X_LIMITS = {"q8": 127, "q16": 32767}


@pytest.fixture(params=PRODUCT_PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


@cache
def weights(fmt: str, n: int, blocks: int) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Rows of blocks with weights as large as a model's: of random blocks those whose largest is 0.01 to 100."""
    f = next(f for f in cbquant.formats() if f.name == fmt)
    if f.kind == "plain":
        return plain_weights(fmt, n, 37 * blocks)
    rng = np.random.default_rng([n, blocks, f.tag])
    kept = np.empty((0, f.bytes), np.uint8)
    while len(kept) < n * blocks:
        drawn = rng.integers(0, 256, (4096, f.bytes), np.uint8)
        with np.errstate(invalid="ignore"):
            largest = np.abs(cbquant.dequant(drawn, fmt)).max(axis=1)
        kept = np.concatenate([kept, drawn[(largest > 0.01) & (largest < 100)]])
    raw = kept[: n * blocks].reshape(n, -1)
    return raw, cbquant.dequant(raw, fmt).astype(np.float64)


def plain_weights(fmt: str, n: int, k: int) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    values = np.random.default_rng(k).integers(-100, 100, (n, k))
    dtype = {"bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "f16": np.float16}.get(fmt)
    array = (values / 64).astype(dtype) if dtype else values.astype(fmt.replace("i", "int"))
    return array.view(np.uint8), array.astype(np.float64)


def activations(m: int, k: int) -> NDArray[np.float32]:
    return np.random.default_rng([m, k]).standard_normal((m, k), np.float32)


def rounded(x: NDArray[np.float32], precision: str, fmt: str) -> NDArray[np.float64]:
    """x as integers under a scale for each 32 or 256, times that scale; written from the promise, not from the C."""
    block = 256 if precision == "q16" or fmt in {f.name for f in BLOCK_FORMATS if f.elements == 256} else 32
    limit = np.float32(X_LIMITS[precision])
    result = np.empty(x.shape, np.float64)
    for begin in range(0, x.shape[1], block):
        part = x[:, begin : begin + block]
        largest = np.abs(part).max(axis=1, keepdims=True)
        result[:, begin : begin + block] = np.rint(part * (limit / largest)) * (largest / limit).astype(np.float64)
    return result


def relative_error(actual: NDArray[Any], expected: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


def error_of_sums(actual: NDArray[Any], x: NDArray[np.float64], w: NDArray[np.float64]) -> float:
    """The error against the size of what was added up: a sum that nearly cancels out has no digits to lose."""
    return float(np.linalg.norm(actual - x @ w.T) / np.linalg.norm(np.abs(x) @ np.abs(w).T))


SHAPES = [(1, 9, 3), (2, 1, 1), (3, 5, 2), (5, 8, 1), (8, 7, 3), (9, 2, 5), (13, 70, 1)]


@pytest.mark.parametrize("fmt", FORMATS)
def test_f32_and_bf16_are_sums_of_exact_products(path: Path, fmt: str) -> None:
    for m, n, blocks in SHAPES:
        raw, w = weights(fmt, n, blocks)
        x = activations(m, w.shape[1])
        assert error_of_sums(path.multiply(x, raw, fmt, n), x.astype(np.float64), w) < 2e-7, (m, n, blocks)
        operands = [v.astype(ml_dtypes.bfloat16).astype(np.float64) for v in (x, w)]
        assert error_of_sums(path.multiply(x, raw, fmt, n, "bf16"), *operands) < 2e-7, (m, n, blocks)


@pytest.mark.parametrize("fmt", BLOCKS)
@pytest.mark.parametrize("precision", ["q8", "q16"])
def test_integer_products_lose_nothing_but_the_rounding_of_x(path: Path, fmt: str, precision: str) -> None:
    for m, n, blocks in SHAPES:
        raw, w = weights(fmt, n, blocks)
        x = activations(m, w.shape[1])
        actual = path.multiply(x, raw, fmt, n, precision)
        assert error_of_sums(actual, rounded(x, precision, fmt), w) < 2e-7, (m, n, blocks)


@pytest.mark.parametrize("fmt", BLOCKS)
@pytest.mark.parametrize("m", [1, 2, 3, 50, 130])
def test_errors_at_the_size_of_a_model(fmt: str, m: int) -> None:
    f = next(f for f in BLOCK_FORMATS if f.name == fmt)
    raw, w = weights(fmt, 65, 4096 // f.elements)
    x = activations(m, w.shape[1])
    exact = x.astype(np.float64) @ w.T
    tensor = cbquant.QuantTensor(raw, fmt, w.shape)
    assert relative_error(cbquant.matmul(x, tensor), exact) <= 1e-6
    assert relative_error(cbquant.matmul(x, tensor, precision="q16"), exact) <= 1.5e-4
    q8 = relative_error(cbquant.matmul(x, tensor, precision="q8"), exact)
    assert q8 <= 1.05 * relative_error(rounded(x, "q8", fmt) @ w.T, exact)
    operands = [v.astype(ml_dtypes.bfloat16).astype(np.float64) for v in (x, w)]
    assert relative_error(cbquant.matmul(x, tensor, precision="bf16"), operands[0] @ operands[1].T) <= 1e-6


@pytest.mark.parametrize("fmt", BLOCKS)
def test_nothing_saturates(path: Path, fmt: str) -> None:
    """Blocks of one byte repeated put every code at an end of its range, in all places at once; with x at its own end,
    16-bit sums are as large as they can be. One that saturated would be wrong by a percent or more."""
    f = next(f for f in BLOCK_FORMATS if f.name == fmt)
    blocks = extreme_blocks(f)
    w = cbquant.dequant(blocks, fmt).astype(np.float64)
    for sign in (-1, 1):
        for m in (1, 5):
            x = np.full((m, f.elements), sign * 127, np.float32)
            for precision in X_LIMITS:
                actual = path.multiply(x, blocks.reshape(-1), fmt, len(blocks), precision)
                assert error_of_sums(actual, x.astype(np.float64), w) < 2e-6


@cache
def extreme_blocks(f: cbquant.Format) -> NDArray[np.uint8]:
    """Blocks of one byte over and over, but for bytes of a scale that would make the values infinite or too large."""
    blocks = []
    for fill in (0x00, 0xFF, 0x0F, 0xF0, 0x7F, 0x80, 0x88, 0x77, 0x33, 0xCC, 0x55, 0xAA):
        block = weights(f.name, 1, 1)[0].reshape(-1).copy()
        for place in range(f.bytes):
            changed = block.copy()
            changed[place] = fill
            if np.abs(cbquant.dequant(changed, f.name)).max() < 1e4:  # false for NaN
                block = changed
        blocks.append(block)
    return np.array(blocks)


@pytest.mark.parametrize("precision", ["f32", "bf16", "q8", "q16"])
@pytest.mark.parametrize("fmt", ["q4_0", "q4_k", "q6_k", "iq4_nl", "q2_k", "q5_1", "nvfp4", "q8_0"])
def test_results_do_not_depend_on_threads_places_or_alignment(fmt: str, precision: str) -> None:
    f = next(f for f in BLOCK_FORMATS if f.name == fmt)
    n, blocks = 1031, 1024 // f.elements
    raw, w = weights(fmt, n, blocks)
    for m in (1, 2, 7, 33):
        x = activations(m, w.shape[1])
        one = cbquant.matmul(x, raw, fmt, w.shape, precision, threads=1)
        for threads in (2, 3, 7):
            assert np.array_equal(cbquant.matmul(x, raw, fmt, w.shape, precision, threads=threads), one)
        shifted = np.empty(raw.size + 5, np.uint8)[5:].reshape(raw.shape)
        shifted[:] = raw
        assert np.array_equal(cbquant.matmul(x, shifted, fmt, w.shape, precision), one)
        assert np.array_equal(cbquant.matmul(x, raw[17:60], fmt, precision=precision), one[:, 17:60])


@pytest.mark.parametrize("precision", ["bf16", "q16"])
@pytest.mark.parametrize("fmt", ["q4_0", "q4_k", "q6_k", "nvfp4", "f16"])
def test_bf16_and_q16_do_not_depend_on_the_number_of_rows(path: Path, fmt: str, precision: str) -> None:
    if fmt == "f16" and precision == "q16":
        fmt = "iq4_nl"
    raw, w = weights(fmt, 7, 3)
    x = activations(23, w.shape[1])
    whole = path.multiply(x, raw, fmt, 7, precision)
    for m in (1, 2, 3, 4, 6, 13):
        assert np.array_equal(path.multiply(x[:m], raw, fmt, 7, precision), whole[:m])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("m", [1, 4, 9])
def test_nan_and_infinity_in_x(path: Path, bad: float, m: int) -> None:
    raw, w = weights("q4_k", 9, 2)
    x = activations(m, w.shape[1])
    x[-1, 300] = bad
    for precision in ("f32", "bf16"):
        with np.errstate(invalid="ignore"):
            expected = x.astype(np.float64) @ w.T
        actual = path.multiply(x, raw, "q4_k", 9, precision)
        assert np.array_equal(np.isnan(actual), np.isnan(expected))
        assert np.array_equal(np.isposinf(actual), np.isposinf(expected))
    for precision in X_LIMITS:
        with pytest.raises(ValueError, match="x: expected finite numbers"):
            path.multiply(x, raw, "q4_k", 9, precision)


def test_tiny_and_zero_x(path: Path) -> None:
    raw, w = weights("q4_0", 5, 2)
    for scale in (0.0, 1e-38, 1e-33, 1e30):
        x = activations(6, 64) * np.float32(scale)
        for precision in X_LIMITS:
            actual = path.multiply(x, raw, "q4_0", 5, precision)
            bound = max(0.02 * scale, 2.0**-111) * np.abs(w).sum()  # below 2^-112 x counts as zero
            assert np.abs(actual - x.astype(np.float64) @ w.T).max() <= bound


def test_zero_weights_give_zero(path: Path) -> None:
    """The offset of the codes leaves in integers, so that nothing of it stays behind."""
    block = np.frombuffer(bytes.fromhex("003c") + bytes([0x88] * 16), np.uint8)
    for m in (1, 7):
        x = activations(m, 32)
        assert not path.multiply(x, block, "q4_0", 1, "q8").any()
        assert not path.multiply(x, block, "q4_0", 1, "q16").any()
