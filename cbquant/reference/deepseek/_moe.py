"""moe_ffn."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._add import Doubles, doubles
from ._router import sigmoid


def moe_ffn(x: Any, gate: Any, up: Any, down: Any, ids: Any, weights: Any, *, limit: float | None = None) -> Doubles:
    """``[T, K]``, decoded experts ``[E, F, K]``, ``[E, F, K]``, ``[E, N, F]``, ``[T, k]``, ``[T, k]`` -> ``[T, N]``.

    The weighted sum of down(silu(gate(x)) up(x)) of each token's experts; the id -1 is none. With a limit gate(x) is at
    most that, and up(x) is clipped to both sides of 0.
    """
    tokens, gates, ups, downs = doubles(x), doubles(gate), doubles(up), doubles(down)
    result = np.zeros((len(tokens), downs.shape[1]))
    for t, chosen in enumerate(np.asarray(ids).tolist()):
        for expert, weight in zip(chosen, doubles(weights)[t], strict=True):
            if expert >= 0:
                inner, factor = gates[expert] @ tokens[t], ups[expert] @ tokens[t]
                if limit is not None:
                    inner, factor = np.minimum(inner, limit), np.clip(factor, -limit, limit)
                result[t] += weight * (downs[expert] @ (inner * sigmoid(inner) * factor))
    return result
