"""The indexer's scores and its choice."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def indexer_score(q: Any, k: Any, w: Any) -> NDArray[np.float64]:
    """``[n]`` of q ``[H, D]``, k ``[n, D]`` or ``[n, H, D]`` and w ``[H]``; ``[B, n]`` of batches of q and w."""
    queries, keys, weights = (np.asarray(x).astype(np.float64) for x in (q, k, w))
    if queries.ndim == 3:
        results = [indexer_score(a, keys, b) for a, b in zip(queries, weights, strict=True)]
        return np.array(results, np.float64).reshape(len(queries), len(keys))
    products = np.einsum("hd,nhd->nh" if keys.ndim == 3 else "hd,nd->nh", queries, keys)
    result: NDArray[np.float64] = np.maximum(products, 0) @ weights
    return result


def indexer_select(q: Any, k: Any, w: Any, topk: int) -> NDArray[np.int32]:
    """The positions with the largest of these scores."""
    return indexer_topk(indexer_score(q, k, w), topk)


def indexer_topk(score: Any, k: int) -> NDArray[np.int32]:
    """The indices of the k largest of the last axis, by falling score; equal ones by rising index, NaN last."""
    values = np.asarray(score).astype(np.float64)
    order = np.argsort(-values, axis=-1, kind="stable")  # NumPy, too, has NaN last
    return order[..., :k].astype(np.int32)
