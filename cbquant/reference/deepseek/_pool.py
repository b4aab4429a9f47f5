"""compressor_pool."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._add import Doubles, doubles


def compressor_pool(gate: Any, kv: Any, ape: Any, ape_on: str = "value") -> Doubles:
    """``[W, P, D or 1]``, ``[W, P, D]``, ``[P, D]`` -> ``[W, D]``: of each window the sum over its entries, weighted by
    the softmax of their gates.

    The ape is added to kv, or with ``ape_on="gate"`` to the gate. An entry with the gate -inf is left out, whatever its
    kv holds; where all are, the result is 0.

    >>> compressor_pool([[[0.0], [-np.inf]]], [[[3.0], [np.nan]]], [[0.0], [0.0]]).tolist()
    [[3.0]]
    """
    gates, values, extra = np.broadcast_to(doubles(gate), doubles(kv).shape), doubles(kv), doubles(ape)
    if ape_on == "gate":
        gates = gates + extra
    else:
        values = values + extra
    is_left_out = gates == -np.inf
    largest = gates.max(axis=1, keepdims=True, initial=-np.inf)
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, and meant
        weights = np.exp(gates - np.where(largest == -np.inf, 0, largest))
        weighted = np.where(is_left_out, 0, weights * np.where(is_left_out, 0, values))
    total = weights.sum(axis=1)
    result: Doubles = np.divide(weighted.sum(axis=1), total, out=np.zeros_like(total), where=total != 0)
    return result
