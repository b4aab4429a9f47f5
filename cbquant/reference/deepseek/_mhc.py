"""mhc_sinkhorn_split, mhc_collapse and mhc_expand."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._add import Doubles, doubles
from ._router import sigmoid


def _matrix(array: Doubles, layout: str) -> Doubles:
    """``[T, 4, 4]`` as (dst, src), from or to `layout`."""
    return array if layout == "dst_src" else array.transpose(0, 2, 1)


def mhc_sinkhorn_split(
    mix: Any,
    scale: Any,
    base: Any,
    iters: int = 20,
    eps: float = 1e-6,
    end: str = "rows",
    comb_layout: str = "dst_src",
) -> tuple[Doubles, Doubles, Doubles]:
    """``[T, 24]``, ``[3]``, ``[24]`` -> pre ``[T, 4]``, post ``[T, 4]``, comb ``[T, 4, 4]``.

    Numbers 0 to 3 of a token are for pre, 4 to 7 for post and the others for comb: each times a scale, plus its base.
    comb is a softmax over src, plus eps, whose columns (over dst) and rows (over src) are then divided by their sums +
    eps in turns, columns first, ending with rows or with columns.
    """
    numbers, factors, offsets = doubles(mix), doubles(scale), doubles(base)
    logits = numbers * np.repeat(factors, [4, 4, 16]) + offsets
    pre = sigmoid(logits[:, :4]) + eps
    post = 2 * sigmoid(logits[:, 4:8])
    comb = _matrix(logits[:, 8:].reshape(-1, 4, 4), comb_layout)
    comb = np.exp(comb - comb.max(axis=2, keepdims=True))
    comb = comb / comb.sum(axis=2, keepdims=True) + eps

    def columns(m: Doubles) -> Doubles:
        result: Doubles = m / (m.sum(axis=1, keepdims=True) + eps)
        return result

    def rows(m: Doubles) -> Doubles:
        result: Doubles = m / (m.sum(axis=2, keepdims=True) + eps)
        return result

    if end == "rows":
        for _ in range(iters):
            comb = rows(columns(comb))
    else:
        comb = columns(comb)
        for _ in range(iters - 1):
            comb = columns(rows(comb))
    return pre, post, _matrix(comb, comb_layout)


def mhc_collapse(pre: Any, h: Any) -> Doubles:
    """``[T, 4]``, ``[T, 4, D]`` -> ``[T, D]``: the streams, weighted and added."""
    result: Doubles = np.einsum("tc,tcd->td", doubles(pre), doubles(h))
    return result


def mhc_expand(block_out: Any, post: Any, comb: Any, residual: Any, comb_layout: str = "dst_src") -> Doubles:
    """``[T, D]``, ``[T, 4]``, ``[T, 4, 4]``, ``[T, 4, D]`` -> ``[T, 4, D]``: each stream is post of it times the output
    of the block, plus a mixture of the residual streams."""
    mixed: Doubles = np.einsum("tij,tjd->tid", _matrix(doubles(comb), comb_layout), doubles(residual))
    return doubles(post)[:, :, None] * doubles(block_out)[:, None, :] + mixed
