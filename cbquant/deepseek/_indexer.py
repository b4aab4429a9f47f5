"""The indexer: scores of a cache's positions, and the choice of the best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant import _core
from cbquant._arguments import check_threads
from cbquant.deepseek._inputs import bits, check_apart, floats, rows, whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_POSITIONS = 2**31 - 1


def indexer_topk(
    score: Any, k: int, *, out: NDArray[np.int32] | None = None, threads: int | None = None
) -> NDArray[np.int32]:
    """The indices of the k largest scores, by falling score; equal ones by rising index, NaN last.

    Parameters
    ----------
    score : array
        ``[n]`` or ``[B, n]`` in float32, float16 or bfloat16. Where the last axis is not contiguous it is copied.
    k : int
        0 to n.
    out : ndarray, optional
        Where to write: int32 ``[k]`` or ``[B, k]``, C-contiguous, apart from `score`.
    threads : int, optional
        As for `cbquant.dequant`. The result does not depend on it.

    Returns
    -------
    ndarray
        int32 ``[k]`` or ``[B, k]``: exactly what a stable sort gives. -0.0 and 0.0 are equal.

    Raises
    ------
    ValueError
        A shape, a k or an `out` that does not fit.
    TypeError
        A wrong type of array, dtype or number.

    Notes
    -----
    Item 9 of DeepSeek-V4's operators: the lightning indexer keeps the positions with the largest scores.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> cbquant.deepseek.indexer_topk(np.float32([1, 3, np.nan, 3, 2]), 4)
    array([1, 3, 4, 0], dtype=int32)
    """
    array = floats(score, "score")
    if array.ndim not in (1, 2):
        raise ValueError(f"score: expected [n] or [B, n], got shape {array.shape}")
    count = whole(k, "k", 0, array.shape[-1])
    result = index_output(out, (*array.shape[:-1], count), {"score": array})
    lines = bits(rows(array if array.ndim == 2 else array[None]))
    _core.indexer_topk(lines, count, result, check_threads(threads))
    return result


def index_output(
    out: NDArray[np.int32] | None, shape: tuple[int, ...], inputs: dict[str, NDArray[Any]]
) -> NDArray[np.int32]:
    """`out` once it can take indices of that shape, or a new array."""
    if out is None:
        return np.empty(shape, np.int32)
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out: expected an ndarray, got {type(out).__name__}")
    if out.dtype != np.int32:
        raise TypeError(f"out: expected dtype int32, got {out.dtype.str if out.dtype.kind == 'i' else out.dtype.name}")
    if out.shape != shape:
        raise ValueError(f"out: expected shape {shape}, got {out.shape}")
    if not out.flags.c_contiguous:
        raise ValueError("out: expected a C-contiguous array, got a strided one")
    if not out.flags.writeable:
        raise ValueError("out: expected a writable array, got a read-only one")
    check_apart(out, inputs)
    return out
