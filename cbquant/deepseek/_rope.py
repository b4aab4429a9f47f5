"""partial_rope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant import _core
from cbquant._arguments import check_threads, check_word, empty, float_dtype_name
from cbquant.deepseek._add import THROUGH_CACHE
from cbquant.deepseek._inputs import bits, dtype_of, flag, floats, number, output, rows, whole

if TYPE_CHECKING:
    from numpy.typing import NDArray


def partial_rope(
    x: Any,
    positions: Any,
    n_rot: int = 64,
    theta: float = 10000.0,
    inverse: bool = False,
    pairs: str = "split",
    *,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Turn the last elements of each head by angles that grow with its position, and copy the others.

    Pair i of the last `n_rot` elements, (a, b), becomes (a cos - b sin, b cos + a sin) of the angle position *
    theta^(-2 i / n_rot). Angles are float64 throughout, so that position 1 000 000 is as exact as position 1.

    Parameters
    ----------
    x : array
        ``[..., T, heads, head_dim]`` or ``[T, head_dim]``: float32, float16 or bfloat16.
    positions : array
        ``[T]``: integers or real numbers, up to 2^53.
    n_rot : int
        Elements that are turned: even, 2 to head_dim.
    theta : float
        The base of the rates; above 0.
    inverse : bool
        Turn back: it undoes the same call without it.
    pairs : "split" or "interleaved"
        Pair i is elements i and i + n_rot/2, or 2 i and 2 i + 1.
    out : ndarray, optional
        Where to write: of x's shape and dtype (uint16 for bfloat16), its last axis contiguous; x itself, or apart from
        it.
    threads : int, optional
        As for `cbquant.dequant`.

    Returns
    -------
    ndarray
        `out`, or a new array, of x's shape and dtype.

    Raises
    ------
    ValueError
        Shapes that do not fit, an unknown word, a number out of its range, an `out` that does not fit or overlaps.
    TypeError
        A wrong type of array, dtype or number.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> x = np.float32([[7, 1, 0], [7, 1, 0]])
    >>> cbquant.deepseek.partial_rope(x, [0, 1], n_rot=2)
    array([[7.        , 1.        , 0.        ],
           [7.        , 0.5403023 , 0.84147096]], dtype=float32)
    """
    values = floats(x, "x")
    if values.ndim < 2:
        raise ValueError(f"x: expected [..., T, heads, head_dim] or [T, head_dim], got shape {values.shape}")
    places = _positions(positions, values.shape[0 if values.ndim == 2 else -3])
    count = whole(n_rot, "n_rot", 2, max(values.shape[-1], 2))
    if count % 2 or count > values.shape[-1]:
        raise ValueError(f"n_rot: expected an even number up to head_dim = {values.shape[-1]}, got {count}")
    base = number(theta, "theta")
    if base <= 0:
        raise ValueError(f"theta: expected a number above 0, got {base}")
    words = (flag(inverse, "inverse"), check_word("pairs", pairs, ("split", "interleaved")) == "interleaved")
    result = _output(out, values, places)
    stream = THROUGH_CACHE if out is None else -1
    source = values if out is not None and _is_same(values, out) else rows(values)
    options = (count, base, *words, check_threads(threads), None, stream)
    _core.partial_rope(bits(source), places, bits(result), *options)
    return result


def _positions(positions: Any, tokens: int) -> NDArray[np.float64]:
    array = np.asarray(positions)
    if array.dtype.kind not in "iuf" and array.size:
        raise TypeError(f"positions: expected integers or real numbers, got dtype {array.dtype}")
    if array.shape != (tokens,):
        raise ValueError(f"positions: expected [T] with T = {tokens}, got shape {array.shape}")
    return np.ascontiguousarray(array, np.float64)


def _output(out: NDArray[Any] | None, x: NDArray[Any], positions: NDArray[np.float64]) -> NDArray[Any]:
    if out is None:
        return empty(x.shape, dtype_of(x))
    if isinstance(out, np.ndarray) and _is_same(x, out):
        result = output(out, x.shape, dtype_of(x), {})
    else:
        result = output(out, x.shape, dtype_of(x), {"x": x, "positions": positions})
    if float_dtype_name(result) != dtype_of(x):
        raise TypeError(f"out: expected the dtype of x, {dtype_of(x)}, got {result.dtype.name}")
    return result


def _is_same(x: NDArray[Any], out: NDArray[Any]) -> bool:
    """Whether both are the same elements in the same places."""
    if x is out:
        return True
    return x.shape == out.shape and x.strides == out.strides and x.size > 0 and x.ctypes.data == out.ctypes.data
