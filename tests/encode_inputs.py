"""Rows and importance matrices that encoders are tried on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def rows(n: int, k: int, seed: int = 0) -> dict[str, Floats]:
    """Float32 ``[n, k]`` of many kinds, by name."""
    rng = np.random.default_rng([seed, n, k])
    gauss = rng.standard_normal((n, k)).astype(np.float32)
    some = rng.random((n, k))
    spike = np.zeros((n, k), np.float32)
    spike[np.arange(n), rng.integers(0, k, n)] = rng.standard_normal(n)
    ramp = np.linspace(-1, 1, k, dtype=np.float32) * np.arange(1, n + 1, dtype=np.float32)[:, None]
    half = gauss.copy()
    half[:, : k // 2] = 0
    exponents = rng.uniform(-10, 10, (n, k))
    return {
        "gauss": gauss,
        "laplace": rng.laplace(size=(n, k)).astype(np.float32),
        "outliers": np.where(some < 0.01, 50 * gauss, gauss),
        "constant": np.repeat(gauss[:, :1], k, axis=1),
        "zeros": np.zeros((n, k), np.float32),
        "tiny": gauss * np.float32(1e-36),
        "subnormal": (gauss * 1e-40).astype(np.float32),
        "small": gauss * np.float32(1e-8),
        "large": gauss * np.float32(1e30),
        "integers": rng.integers(-8, 9, (n, k)).astype(np.float32),
        "ternary": rng.integers(-1, 2, (n, k)).astype(np.float32),
        "spike": spike,
        "ramp": ramp,
        "mixed rows": gauss * np.exp(rng.uniform(-20, 20, (n, 1))).astype(np.float32),
        "mixed exponents": gauss * np.exp(exponents).astype(np.float32),
        "sparse": np.where(some < 0.8, 0, gauss).astype(np.float32),
        "two values": np.where(some < 0.5, np.float32(0.7), np.float32(-0.7)),
        "positive": np.abs(gauss),
        "negative zeros": np.where(gauss > 0, np.float32(-0.0), gauss),
        "half zero": half,
        "zeros of both signs": np.where(some < 0.5, np.float32(0), np.float32(-0.0)),
    }


def importance(k: int, seed: int = 0) -> dict[str, Floats | None]:
    """None and float32 ``[k]`` of many kinds, by name."""
    rng = np.random.default_rng([seed, k])
    random = rng.random(k, dtype=np.float32)
    return {
        "none": None,
        "random": random**2 + np.float32(1e-3),
        "ones": np.ones(k, np.float32),
        "half zero": np.where(rng.random(k) < 0.5, 0, random).astype(np.float32),
        "mixed exponents": np.exp(rng.uniform(-8, 8, k)).astype(np.float32),
    }
