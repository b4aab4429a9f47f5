"""The indexer's scores and its choice."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def indexer_topk(score: Any, k: int) -> NDArray[np.int32]:
    """The indices of the k largest of the last axis, by falling score; equal ones by rising index, NaN last."""
    values = np.asarray(score).astype(np.float64)
    order = np.argsort(-values, axis=-1, kind="stable")  # NumPy, too, has NaN last
    return order[..., :k].astype(np.int32)
