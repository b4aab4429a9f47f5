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


def indexer_select(q: Any, k: Any, w: Any, topk: int, *, lengths: Any = None) -> NDArray[np.int32]:
    """The positions with the largest of these scores."""
    return indexer_topk(indexer_score(q, k, w), topk, lengths=lengths)


def indexer_topk(score: Any, k: int, *, lengths: Any = None) -> NDArray[np.int32]:
    """The indices of the k largest of the last axis, by falling score; equal ones by rising index, NaN last.

    With lengths ``[B]`` of the first scores of ``[B, n]`` only; -1 follows where these are fewer than k.
    """
    values = np.asarray(score).astype(np.float64)
    if lengths is not None:
        result = np.full((len(values), k), -1, np.int32)
        for row, scores, n in zip(result, values, lengths, strict=True):
            chosen = indexer_topk(scores[:n], k)
            row[: len(chosen)] = chosen
        return result
    order = np.argsort(-values, axis=-1, kind="stable")  # NumPy, too, has NaN last
    return order[..., :k].astype(np.int32)
