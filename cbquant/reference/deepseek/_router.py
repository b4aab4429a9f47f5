"""router_sqrtsoftplus and route."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._add import Doubles, doubles


def softplus(x: Any) -> Doubles:
    """log(1 + e^x), by max(x, 0) + log1p(e^-|x|).

    >>> softplus([-1e4, 0, 1e4]).round(6).tolist()
    [0.0, 0.693147, 10000.0]
    """
    values = doubles(x)
    return np.maximum(values, 0) + np.log1p(np.exp(-np.abs(values)))


def sigmoid(x: Any) -> Doubles:
    """1 / (1 + e^-x)."""
    values = doubles(x)
    small = np.exp(-np.abs(values))
    result: Doubles = np.where(values < 0, small, 1) / (1 + small)
    return result


def router_sqrtsoftplus(logits: Any, bias: Any) -> tuple[Doubles, Doubles]:
    """``[T, E]``, ``[E]`` -> unbiased, biased ``[T, E]``: sqrt(softplus(logit)), and that + bias."""
    unbiased = np.sqrt(softplus(logits))
    return unbiased, unbiased + doubles(bias)


def route(
    logits: Any, bias: Any, k: int, scale: float = 1.0, normalize: bool = False, scoring: str = "sqrtsoftplus"
) -> tuple[NDArray[np.int32], Doubles]:
    """``[T, E]``, ``[E]`` -> ids ``[T, k]`` by falling biased score (ties to the lower id, NaN last) and their unbiased
    scores ``[T, k]``: over their sum where `normalize` is set (unless that is 0), times `scale`.

    >>> route([[1.0, 3.0, 1.0]], [0.0, 0.0, 0.0], 2)[0].tolist()
    [[1, 0]]
    """
    unbiased = sigmoid(logits) if scoring == "sigmoid" else np.sqrt(softplus(logits))
    biased = unbiased + doubles(bias)
    is_nan = np.isnan(biased)
    places = np.broadcast_to(np.arange(biased.shape[1]), biased.shape)
    order = np.lexsort((places, -np.where(is_nan, 0, biased), is_nan), axis=-1)
    ids = order[:, :k].astype(np.int32)
    weights = np.take_along_axis(unbiased, order[:, :k], axis=1)
    if normalize:
        total = weights.sum(axis=1, keepdims=True)
        weights = np.divide(weights, total, out=weights.copy(), where=total != 0)
    return ids, weights * scale
