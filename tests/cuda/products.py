"""Weights, inputs and exact results for tests of the device's products."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import cbquant
from cbquant import reference
from tests.paths import ROOT, random_blocks

#: cbq_cuda_precision of cuda/host/kernels.h, and the float types of csrc/base.h.
PRECISIONS = {"bf16": 0, "f32": 1}
CODES = {"float32": 0, "float16": 1, "bfloat16": 2}
#: The formats of cuda/device/fragment_formats.h.
FRAGMENTS = re.findall(r"ROW\((\w+), [A-Z]", (ROOT / "cuda" / "device" / "fragment_formats.h").read_text())
#: CBQ_CUDA_MARGIN of cuda/host/kernels.h: readable bytes on both sides of weights.
MARGIN = 16


def to_bf16(x: NDArray[np.floating]) -> NDArray[np.uint16]:
    """bfloat16's bits, rounded to nearest even."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def from_bf16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


@dataclass(frozen=True)
class Weights:
    """Rows of blocks; `values` are what the device multiplies with: bfloat16 of the decoded values, as float64."""

    fmt: str
    blocks: NDArray[np.uint8]  # [n, row bytes]
    values: NDArray[np.float64]  # [n, k]

    @property
    def with_margin(self) -> NDArray[np.uint8]:
        margin = np.full(MARGIN, 0xFF, np.uint8)
        return np.concatenate([margin, self.blocks.ravel(), margin])


def make_weights(fmt: str, n: int, k: int, seed: int = 0) -> Weights:
    """Random bytes, so that every code occurs, in all rows where they decode to numbers of moderate size; the others
    are encoded Gaussian values."""
    f = cbquant._formats.get(fmt)
    rng = np.random.default_rng(seed)
    blocks = random_blocks(fmt, n * k // f.elements, seed).reshape(n, -1).copy()
    with np.errstate(all="ignore"):
        largest = np.abs(reference.dequant(blocks, fmt).reshape(n, k)).max(1)
    bad = ~(largest < 100) | (largest < 0.001)
    if bad.any():
        x = rng.standard_normal((int(bad.sum()), k)).astype(np.float32)
        imatrix = np.ones(k, np.float32) if f.needs_imatrix else None
        blocks[bad] = cbquant.quantize(x, fmt, imatrix=imatrix)
    values = reference.dequant(blocks, fmt).reshape(n, k)
    return Weights(fmt, blocks, from_bf16(to_bf16(values)).astype(np.float64))


#: Formats of plain types that have products, and the dtype of their elements.
PLAIN = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def make_plain(fmt: str, n: int, k: int, seed: int = 0) -> Weights:
    """Gaussian values, and a row of NaN in the middle, which no other row may see."""
    x = make_x(n, k, PLAIN[fmt], seed)
    if n > 1:
        x[n // 2] = 0x7FC0 if fmt == "bf16" else np.nan
    values = as_float64(x, PLAIN[fmt]).astype(np.float32)
    rounded = from_bf16(to_bf16(values)).astype(np.float64)
    rounded[np.isnan(values)] = np.nan
    return Weights(fmt, x.view(np.uint8).reshape(n, -1), rounded)


def make_x(m: int, k: int, dtype: str, seed: int = 0) -> NDArray[np.generic]:
    """Gaussian rows in a dtype; bfloat16 as its bits."""
    x = np.random.default_rng(seed).standard_normal((m, k)).astype(np.float32)
    return to_bf16(x) if dtype == "bfloat16" else x.astype(dtype)


def as_float64(x: NDArray[np.generic], dtype: str) -> NDArray[np.float64]:
    return (from_bf16(x) if dtype == "bfloat16" else x).astype(np.float64)  # type: ignore[arg-type]


def exact(
    x: NDArray[np.generic], dtype: str, weights: NDArray[np.float64], precision: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The product in float64 of what the device multiplies, and the sum of the magnitudes that it added up."""
    values = as_float64(x, dtype)
    if precision == "bf16":
        values = from_bf16(to_bf16(values)).astype(np.float64)
    return values @ weights.T, np.abs(values) @ np.abs(weights).T


def assert_close(
    y: NDArray[np.generic], dtype: str, expected: tuple[NDArray[np.float64], NDArray[np.float64]], k: int
) -> None:
    """Every element is as near as float32 sums of k products and the rounding to `dtype` allow."""
    product, magnitude = expected
    half_unit = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    allowed = (k + 8) * 2.0**-24 * magnitude + half_unit * np.abs(product) + (2.0**-24 if dtype == "float16" else 0)
    values = as_float64(y, dtype)
    assert np.array_equal(np.isnan(values), np.isnan(product))
    error = np.abs(np.nan_to_num(values - product))
    worst = np.unravel_index(np.argmax(np.nan_to_num(error - allowed)), error.shape)
    assert (error <= np.nan_to_num(allowed)).all(), f"{worst}: {values[worst]}, expected {product[worst]}"
