"""Operands of products, and the products in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import cbquant
from tests.test_matmul import weights

N, K, E, T, PICKS = 37, 512, 5, 6, 3
RNG = np.random.default_rng(7)
X = RNG.standard_normal((T, K)).astype(np.float32)
IDS = RNG.integers(-1, E, (T, PICKS)).astype(np.int32)
FACTORS = RNG.random((T, PICKS)).astype(np.float32)
FLOATS = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
TOLERANCE = {"bf16": 1e-2, "f32": 1e-5}  # relative L2


def tensor(fmt: str = "q4_k", *shape: int) -> cbquant.QuantTensor:
    shape = shape or (N, K)
    if 0 in shape:
        return cbquant.QuantTensor(b"", fmt, shape)
    raw, _ = weights(fmt, int(np.prod(shape[:-1])), shape[-1] // cbquant._formats.get(fmt).elements)
    return cbquant.QuantTensor(raw, fmt, shape)


def exact(x: Any, t: cbquant.QuantTensor) -> NDArray[np.float64]:
    """The product with weights as they count: rounded to bfloat16."""
    w = t.dequant("bfloat16").astype(np.float64)
    product: NDArray[np.float64] = np.asarray(x, np.float64) @ np.swapaxes(w, -1, -2)
    return product


def error(y: Any, expected: NDArray[np.float64]) -> float:
    y = np.asarray(y).astype(np.float64)
    return float(np.linalg.norm(y - expected) / np.linalg.norm(expected))
