"""partial_rope."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._add import Doubles, doubles


def partial_rope(
    x: Any,
    positions: Any,
    n_rot: int = 64,
    theta: float = 10000.0,
    inverse: bool = False,
    pairs: str = "split",
    *,
    frequencies: Any = None,
) -> Doubles:
    """``[.., T, heads, head_dim]`` or ``[T, head_dim]``, ``[T]`` -> the same with the last n_rot elements turned.

    Pair i of them, (i, i + n_rot/2) or with ``pairs="interleaved"`` (2i, 2i + 1), is turned by position *
    theta^(-2i/n_rot), or position * frequencies[i]; with `inverse` back by it.

    >>> partial_rope([[5.0, 1.0, 0.0]], [np.pi / 2], n_rot=2).round(6).tolist()
    [[5.0, 0.0, 1.0]]
    """
    values = doubles(x)
    result: Doubles = values.copy()
    rates = theta ** (-2.0 * np.arange(n_rot // 2) / n_rot) if frequencies is None else doubles(frequencies)
    angles = doubles(positions)[:, None] * rates
    if values.ndim > 2:
        angles = angles[:, None, :]  # of all heads
    cosine, sine = np.cos(angles), np.sin(angles) * (-1 if inverse else 1)
    turned = result[..., result.shape[-1] - n_rot :]
    if pairs == "split":
        first, second = slice(0, n_rot // 2), slice(n_rot // 2, None)
    else:
        first, second = slice(0, None, 2), slice(1, None, 2)
    a, b = turned[..., first].copy(), turned[..., second].copy()
    turned[..., first] = a * cosine - b * sine
    turned[..., second] = b * cosine + a * sine
    return result
