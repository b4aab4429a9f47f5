"""Attention of one token over a cache, or over the rows of it that a list names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


def sdpa_decode_sink(q: Any, k: Any, v: Any, sink: Any, scale: float | None = None, lengths: Any = None) -> Doubles:
    """``[H, Dv]`` of q ``[H, D]``, k ``[Hkv, n, D]``, v ``[Hkv, n, Dv]`` and sink ``[H]`` (or None).

    Or each but the sink with a batch axis in front, and then `lengths` says how many rows of a sequence count.
    """
    queries, keys, values = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    if queries.ndim == 3:
        counts = [keys.shape[2]] * len(queries) if lengths is None else lengths
        cases = zip(queries, keys, values, counts, strict=True)
        results = [sdpa_decode_sink(a, b[:, :n], c[:, :n], sink, scale) for a, b, c, n in cases]
        return np.array(results, np.float64).reshape(*queries.shape[:2], values.shape[3])
    heads, width = queries.shape
    factor = 1 / math.sqrt(max(width, 1)) if scale is None else scale
    sinks = np.full(heads, -np.inf) if sink is None else np.asarray(sink).astype(np.float64)
    share = heads // len(keys)
    return np.array(
        [_head(queries[h], keys[h // share], values[h // share], sinks[h], factor) for h in range(heads)]
    ).reshape(heads, values.shape[2])


def _head(q: Doubles, k: Doubles, v: Doubles, sink: float, scale: float) -> Doubles:
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, and meant
        logits = scale * (k @ q)
        largest = np.maximum(sink, logits.max(initial=-np.inf))
        if largest == -np.inf:
            return np.zeros(v.shape[1])
        weights = np.exp(logits - largest)
        share = 1.0 if sink == largest else np.exp(sink - largest)  # a sink of infinity leaves nothing to the others
        counts = logits != -np.inf  # a row of weight 0 adds nothing, even where its value is infinite
        result: Doubles = weights[counts] @ v[counts] / (weights.sum() + share)
    return result


def sparse_sdpa_decode(q: Any, k: Any, v: Any, indices: Any, sink: Any = None, scale: float | None = None) -> Doubles:
    """The same over the rows that ``[n_sel]`` or ``[B, n_sel]`` indices name; -1 names none."""
    queries, keys, values, lists = np.asarray(q), np.asarray(k), np.asarray(v), np.asarray(indices)
    if queries.ndim == 3:
        each = np.broadcast_to(lists, (len(queries), lists.shape[-1]))
        cases = zip(queries, keys, values, each, strict=True)
        results = [sparse_sdpa_decode(a, b, c, i, sink, scale) for a, b, c, i in cases]
        return np.array(results, np.float64).reshape(*queries.shape[:2], values.shape[3])
    rows = lists[lists >= 0]
    return sdpa_decode_sink(queries, keys[:, rows], values[:, rows], sink, scale)


def gather_list(topk: Any, n_kv: Any, window: Any = 128) -> NDArray[np.int32]:
    """The positions of ``[k]`` and the last `window` ones of `n_kv`, each once, rising.

    Of ``[B, k]`` lists filled up with -1; `n_kv` and `window` are then numbers or ``[B]``.
    """
    chosen = np.asarray(topk)
    if chosen.ndim == 2:
        each = (np.broadcast_to(numbers, len(chosen)).tolist() for numbers in (n_kv, window))
        lists = [gather_list(row, n, last) for row, n, last in zip(chosen, *each, strict=True)]
        longest = max((len(one) for one in lists), default=0)
        padded = [np.pad(one, (0, longest - len(one)), constant_values=-1) for one in lists]
        return np.array(padded, np.int32).reshape(len(lists), longest)
    last = range(max(n_kv - window, 0), n_kv)
    return np.array(sorted({int(i) for i in chosen if i >= 0} | set(last)), np.int32)
