"""The indexer: scores of a cache's positions, and the choice of the best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant import _core
from cbquant._arguments import check_integers_out, check_threads
from cbquant.deepseek._inputs import MAX_POSITIONS, Sizes, bits, check_apart, floats, output, positions, rows, whole

if TYPE_CHECKING:
    from numpy.typing import NDArray


def indexer_score(
    q: Any, k: Any, w: Any, *, out: NDArray[np.float32] | None = None, threads: int | None = None
) -> NDArray[np.float32]:
    """The indexer's score of each position: ``score[i] = sum_h w[h] * max(0, q[h] . k[i])``.

    Parameters
    ----------
    q : array
        ``[H, D]``, or ``[B, H, D]`` for a batch; float32, float16 or bfloat16.
    k : array
        ``[n, D]``, shared by the heads, or ``[n, H, D]``; the same for all of a batch.
    w : array
        ``[H]`` or ``[B, H]``: the heads' weights.
    out : ndarray, optional
        Where to write: float32 ``[n]`` or ``[B, n]``, its last axis contiguous, apart from the inputs.
    threads : int, optional
        As for `cbquant.dequant`. The result does not depend on it, nor on what else is in the batch.

    Returns
    -------
    ndarray
        float32 ``[n]`` or ``[B, n]``.

    Raises
    ------
    ValueError
        Shapes that do not fit, an `out` that does not fit or overlaps.
    TypeError
        A wrong type of array, dtype or number.

    Notes
    -----
    Item 8 of DeepSeek-V4's operators, the lightning indexer. Products and sums are float32.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> q, k = np.float32([[1, 0], [0, -1]]), np.float32([[3, 1], [3, -1], [-2, -4]])
    >>> cbquant.deepseek.indexer_score(q, k, w=np.float32([1, 10]))
    array([ 3., 13., 40.], dtype=float32)
    """
    (query, keys, weights), inputs = _operands(q, k, w)
    shape = (*inputs["q"].shape[:-2], len(inputs["k"]))
    result = output(out, shape, "float32", inputs)
    if result.dtype != np.float32:
        raise TypeError(f"out: expected dtype float32, got {result.dtype.name}")
    _core.indexer_score(query, keys, weights, result if result.ndim == 2 else result[None], check_threads(threads))
    return result


def indexer_select(
    q: Any,
    k: Any,
    w: Any,
    topk: int,
    *,
    lengths: Any = None,
    out: NDArray[np.int32] | None = None,
    threads: int | None = None,
) -> NDArray[np.int32]:
    """The positions with the largest scores: `indexer_topk` of `indexer_score`, with no array of scores in between.

    Parameters
    ----------
    q, k, w
        As for `indexer_score`.
    topk : int
        How many positions: 0 to n; with `lengths` any number.
    lengths : array of int, optional
        ``[B]``, with a batch: only so many positions count for each query, as where tokens of a prompt see no later
        ones. What lies after them is not read.
    out : ndarray, optional
        Where to write: int32 ``[topk]`` or ``[B, topk]``, C-contiguous, apart from the inputs.
    threads : int, optional
        As for `cbquant.dequant`. The result does not depend on it, nor on what else is in the batch.

    Returns
    -------
    ndarray
        int32 ``[topk]`` or ``[B, topk]``, by falling score; equal ones by rising position, NaN last; then -1 where
        there are fewer.

    Raises
    ------
    ValueError
        Shapes that do not fit, a `topk`, a length or an `out` that does not fit.
    TypeError
        A wrong type of array, dtype or number.

    Notes
    -----
    Items 8 and 9 of DeepSeek-V4's operators. Scores are made some thousands at a time, and only candidates are kept.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> q, k = np.float32([[1, 0], [0, -1]]), np.float32([[3, 1], [3, -1], [-2, -4]])
    >>> cbquant.deepseek.indexer_select(q, k, np.float32([1, 10]), topk=2)
    array([2, 1], dtype=int32)
    """
    (query, keys, weights), inputs = _operands(q, k, w)
    counts = _lengths(lengths, inputs["q"].shape[:-2], inputs)
    count = whole(topk, "topk", 0, len(keys) if counts is None else MAX_POSITIONS)
    result = index_output(out, (*inputs["q"].shape[:-2], count), inputs)
    _core.indexer_select(query, keys, weights, count, result, check_threads(threads), None, counts)
    return result


def _operands(q: Any, k: Any, w: Any) -> tuple[tuple[NDArray[Any], ...], dict[str, NDArray[Any]]]:
    """q ``[B, H, D]``, k and w ``[B, H]`` as C takes them; and the arguments themselves, by name."""
    sizes, batch = Sizes(), "B " if np.ndim(q) == 3 else ""
    query = floats(q, "q", f"{batch}H D", sizes)
    keys = floats(k, "k", "n H D" if np.ndim(k) == 3 else "n D", sizes)
    weights = floats(w, "w", f"{batch}H", sizes)
    inputs = {"q": query, "k": keys, "w": weights}
    if not batch:
        query, weights = query[None], weights[None]
    return (bits(rows(query)), bits(rows(keys)), bits(rows(weights))), inputs


def _lengths(lengths: Any, batch: tuple[int, ...], inputs: dict[str, NDArray[Any]]) -> NDArray[np.int64] | None:
    """The lengths of ``(B,)`` rows as C takes them; they join the inputs."""
    if lengths is None:
        return None
    if not batch:
        raise ValueError("lengths: expected None without a batch")
    counts = positions(lengths, "lengths")
    if counts.shape != batch:
        raise ValueError(f"lengths: expected [B] with B = {batch[0]}, got shape {counts.shape}")
    inputs["lengths"] = np.asarray(lengths)
    return counts


def indexer_topk(
    score: Any,
    k: int,
    *,
    lengths: Any = None,
    out: NDArray[np.int32] | None = None,
    threads: int | None = None,
) -> NDArray[np.int32]:
    """The indices of the k largest scores, by falling score; equal ones by rising index, NaN last.

    Parameters
    ----------
    score : array
        ``[n]`` or ``[B, n]`` in float32, float16 or bfloat16. Where the last axis is not contiguous it is copied.
    k : int
        0 to n; with `lengths` any number.
    lengths : array of int, optional
        ``[B]``, with a batch: only the first scores of each row count. What lies after them is not read.
    out : ndarray, optional
        Where to write: int32 ``[k]`` or ``[B, k]``, C-contiguous, apart from `score`.
    threads : int, optional
        As for `cbquant.dequant`. The result does not depend on it.

    Returns
    -------
    ndarray
        int32 ``[k]`` or ``[B, k]``: exactly what a stable sort gives; then -1 where a row has fewer. -0.0 and 0.0 are
        equal.

    Raises
    ------
    ValueError
        A shape, a k, a length or an `out` that does not fit.
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

    Two rows of which one and three scores count.

    >>> cbquant.deepseek.indexer_topk(np.float32([[1, 3, 2], [1, 3, 2]]), 2, lengths=[1, 3])
    array([[ 0, -1],
           [ 1,  2]], dtype=int32)
    """
    array = floats(score, "score")
    if array.ndim not in (1, 2):
        raise ValueError(f"score: expected [n] or [B, n], got shape {array.shape}")
    inputs = {"score": array}
    counts = _lengths(lengths, array.shape[:-1], inputs)
    count = whole(k, "k", 0, array.shape[-1] if counts is None else MAX_POSITIONS)
    result = index_output(out, (*array.shape[:-1], count), inputs)
    lines = bits(rows(array if array.ndim == 2 else array[None]))
    _core.indexer_topk(lines, count, result, check_threads(threads), None, counts)
    return result


def index_output(
    out: NDArray[np.int32] | None, shape: tuple[int, ...], inputs: dict[str, NDArray[Any]]
) -> NDArray[np.int32]:
    """`out` once it can take indices of that shape, or a new array."""
    result = check_integers_out(out, shape, np.dtype(np.int32))
    if out is not None:
        check_apart(out, inputs)
    return result
