"""Multi-head latent attention of one token."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._attention import sdpa_decode_sink

Doubles = NDArray[np.float64]


def mla_decode(q_nope: Any, q_rope: Any, w_uk: Any, ckv: Any, k_rope: Any, scale: float | None = None) -> Doubles:
    """``[H, R]`` of q_nope ``[H, d]``, q_rope ``[H, r]``, w_uk ``[H, d, R]``, ckv ``[n, R]`` and k_rope ``[n, r]``."""
    arrays = (np.asarray(x).astype(np.float64) for x in (q_nope, q_rope, w_uk, ckv, k_rope))
    plain, rotated, up, compressed, positions = arrays
    factor = 1 / math.sqrt(max(plain.shape[1] + rotated.shape[1], 1)) if scale is None else scale
    absorbed = np.einsum("hd,hdr->hr", plain, up)
    queries = np.concatenate([absorbed, rotated], axis=1)
    keys = np.concatenate([compressed, positions], axis=1)
    return sdpa_decode_sink(queries, keys[None], compressed[None], None, factor)
