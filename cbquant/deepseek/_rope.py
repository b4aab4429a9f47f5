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

_THETA = 10000.0  # what `theta` is by default


def partial_rope(
    x: Any,
    positions: Any,
    n_rot: int = 64,
    theta: float = 10000.0,
    inverse: bool = False,
    pairs: str = "split",
    *,
    frequencies: Any = None,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Turn the last elements of each head by angles that grow with its position, and copy the others.

    Pair i of the last `n_rot` elements, (a, b), becomes (a cos - b sin, b cos + a sin) of the angle position *
    theta^(-2 i / n_rot), or position * frequencies[i]. Angles are float64 throughout, so that position 1 000 000 is as
    exact as position 1.

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
    frequencies : array, optional
        ``[n_rot/2]``: radians a position of each pair, real numbers up to 2^53, in place of theta's powers. `theta`
        then has its default.
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
    places = reals(positions, "positions", "T", values.shape[0 if values.ndim == 2 else -3])
    count = whole(n_rot, "n_rot", 2, max(values.shape[-1], 2))
    if count % 2 or count > values.shape[-1]:
        raise ValueError(f"n_rot: expected an even number up to head_dim = {values.shape[-1]}, got {count}")
    base = base_of(theta, frequencies is not None)
    rates = None if frequencies is None else reals(frequencies, "frequencies", "n_rot/2", count // 2)
    words = (flag(inverse, "inverse"), check_word("pairs", pairs, ("split", "interleaved")) == "interleaved")
    inputs = {"positions": positions} if rates is None else {"positions": positions, "frequencies": frequencies}
    result = _output(out, values, inputs)
    stream = THROUGH_CACHE if out is None else -1
    source = values if out is not None and _is_same(values, out) else rows(values)
    options = (count, base, *words, check_threads(threads), None, stream, rates)
    _core.partial_rope(bits(source), places, bits(result), *options)
    return result


def base_of(theta: float, is_replaced: bool) -> float:
    """`theta` as a number above 0; the default where frequencies take its place."""
    base = number(theta, "theta")
    if base <= 0:
        raise ValueError(f"theta: expected a number above 0, got {base}")
    if is_replaced and base != _THETA:
        raise ValueError(f"theta: expected its default where frequencies are given, got {base}")
    return base


def reals(x: Any, name: str, axis: str, size: int) -> NDArray[np.float64]:
    """`x` ``[size]`` as C takes positions and frequencies."""
    array = np.asarray(x)
    if array.dtype.kind not in "iuf" and array.size:
        raise TypeError(f"{name}: expected integers or real numbers, got dtype {array.dtype}")
    if array.shape != (size,):
        raise ValueError(f"{name}: expected [{axis}] with {axis} = {size}, got shape {array.shape}")
    return np.require(array, np.float64, ["C_CONTIGUOUS", "ALIGNED"])


def _output(out: NDArray[Any] | None, x: NDArray[Any], others: dict[str, Any]) -> NDArray[Any]:
    if out is None:
        return empty(x.shape, dtype_of(x))
    # Numbers of other types than float64 are copied, but out= never depends on the dtype of an input.
    inputs = {name: np.asarray(array) for name, array in others.items()}
    if not (isinstance(out, np.ndarray) and _is_same(x, out)):
        inputs = {"x": x, **inputs}
    result = output(out, x.shape, dtype_of(x), inputs)
    if float_dtype_name(result) != dtype_of(x):
        raise TypeError(f"out: expected the dtype of x, {dtype_of(x)}, got {result.dtype.name}")
    return result


def _is_same(x: NDArray[Any], out: NDArray[Any]) -> bool:
    """Whether both are the same elements in the same places."""
    if x is out:
        return True
    return x.shape == out.shape and x.strides == out.strides and x.size > 0 and x.ctypes.data == out.ctypes.data
