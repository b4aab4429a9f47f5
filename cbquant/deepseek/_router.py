"""router_sqrtsoftplus and route."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant import _core
from cbquant._arguments import check_threads, check_word
from cbquant.deepseek._inputs import (
    Sizes,
    bits,
    check_apart,
    dtype_of,
    flag,
    floats,
    number,
    output,
    outputs,
    rows,
    whole,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SCORINGS = ("sqrtsoftplus", "sigmoid")


def router_sqrtsoftplus(
    logits: Any, bias: Any, *, out: Sequence[NDArray[Any]] | None = None, threads: int | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Scores of experts: the square root of the softplus of each logit, and that with the bias added.

    unbiased = sqrt(max(x, 0) + log1p(exp(-abs(x)))), which never overflows; biased = unbiased + bias. DeepSeek-V4
    chooses experts by the biased scores and weighs them by the unbiased ones: `route` does both.

    Parameters
    ----------
    logits : array
        ``[T, E]``: float32, float16 or bfloat16.
    bias : array
        ``[E]``: float32, float16 or bfloat16.
    out : (ndarray, ndarray), optional
        Where to write: two arrays ``[T, E]``, apart from the inputs and each other, their last axes contiguous;
        float32, float16, bfloat16, or uint16 for the bits of bfloat16.
    threads : int, optional
        As for `cbquant.dequant`.

    Returns
    -------
    unbiased, biased : ndarray
        ``[T, E]``: those of `out`, or new arrays of logits' dtype. Below a logit of about -175 scores are 0 in float32.

    Raises
    ------
    ValueError
        Shapes that do not fit, an `out` that does not fit or overlaps.
    TypeError
        A wrong type of array, dtype or number.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> logits = np.float32([[0, -1e4, 1e4]])
    >>> unbiased, biased = cbquant.deepseek.router_sqrtsoftplus(logits, np.float32([0, 1, 0]))
    >>> unbiased.round(4)
    array([[  0.8326,   0.    , 100.    ]], dtype=float32)
    >>> biased.round(4)
    array([[  0.8326,   1.    , 100.    ]], dtype=float32)
    """
    sizes = Sizes()
    scores, offsets = floats(logits, "logits", "T E", sizes), floats(bias, "bias", "E", sizes)
    inputs = {"logits": scores, "bias": offsets}
    results = []
    for i, place in enumerate(outputs(out, 2)):
        name = f"out[{i}]"
        result = output(place, scores.shape, dtype_of(scores), inputs, name=name)
        results.append(result)
        inputs[name] = result
    unbiased, biased = results
    _core.router(
        bits(rows(scores)), bits(rows(offsets)), bits(unbiased), bits(biased), "sqrtsoftplus", check_threads(threads)
    )
    return unbiased, biased


def route(
    logits: Any,
    bias: Any,
    k: int,
    scale: float = 1.0,
    normalize: bool = False,
    scoring: str = "sqrtsoftplus",
    *,
    out: Sequence[NDArray[Any]] | None = None,
    threads: int | None = None,
) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Choose the k experts of each token, and weigh them.

    The k largest scores with the bias added are chosen; a chosen expert's weight is its score without it, divided by
    the sum of the k with `normalize`, and then times `scale` (the model's ``routed_scaling_factor``).

    Parameters
    ----------
    logits : array
        ``[T, E]``: float32, float16 or bfloat16.
    bias : array
        ``[E]``: float32, float16 or bfloat16.
    k : int
        Experts of a token, 1 to E.
    scale : float
        Multiplies the weights.
    normalize : bool
        Whether the weights of a token add up to `scale`. Where the scores of its k experts are all 0 they stay 0.
    scoring : "sqrtsoftplus" or "sigmoid"
        Of a logit: as `router_sqrtsoftplus`, or 1 / (1 + exp(-x)), the gate of DeepSeek-V3.
    out : (ndarray, ndarray), optional
        Where to write: ids, int32 ``[T, k]`` and C-contiguous; and weights, as for `router_sqrtsoftplus`.
    threads : int, optional
        As for `cbquant.dequant`.

    Returns
    -------
    ids : ndarray of int32
        ``[T, k]``, by falling biased score; ties go to the lower id, and NaN comes last.
    weights : ndarray
        ``[T, k]``, in logits' dtype.

    Raises
    ------
    ValueError
        Shapes that do not fit, a `k` that is not 1 to E, an unknown scoring, an `out` that does not fit or overlaps.
    TypeError
        A wrong type of array, dtype or number.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> logits = np.float32([[0, 2, 1, 2], [3, 0, 0, 0]])
    >>> ids, weights = cbquant.deepseek.route(logits, np.zeros(4, np.float32), 2, normalize=True)
    >>> ids
    array([[1, 3],
           [0, 1]], dtype=int32)
    >>> weights.round(4)
    array([[0.5   , 0.5   ],
           [0.6771, 0.3229]], dtype=float32)
    """
    sizes = Sizes()
    scores, offsets = floats(logits, "logits", "T E", sizes), floats(bias, "bias", "E", sizes)
    count = whole(k, "k", 1, sizes["E"])
    factor = number(scale, "scale")
    words = (flag(normalize, "normalize"), check_word("scoring", scoring, _SCORINGS))
    inputs = {"logits": scores, "bias": offsets}
    place, other = outputs(out, 2)
    ids = _ids(place, (sizes["T"], count), inputs)
    weights = output(other, ids.shape, dtype_of(scores), {**inputs, "out[0]": ids}, name="out[1]")
    arrays = (bits(rows(scores)), bits(rows(offsets)), ids, bits(weights))
    _core.route(*arrays, count, factor, *words, check_threads(threads))
    return ids, weights


def _ids(out: Any, shape: tuple[int, ...], inputs: dict[str, NDArray[Any]]) -> NDArray[np.int32]:
    """`out` once it can take the ids, or a new array."""
    if out is None:
        return np.empty(shape, np.int32)
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out[0]: expected an ndarray, got {type(out).__name__}")
    if out.dtype != np.int32:
        raise TypeError(f"out[0]: expected dtype int32, got {out.dtype.name}")
    if out.shape != shape:
        raise ValueError(f"out[0]: expected shape {shape}, got {out.shape}")
    if not (out.flags.c_contiguous and out.flags.aligned and out.flags.writeable):
        raise ValueError("out[0]: expected a C-contiguous, aligned, writable array")
    check_apart(out, inputs, "out[0]")
    return out
