"""mhc_sinkhorn_split, mhc_collapse and mhc_expand: the streams of a residual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cbquant import _core
from cbquant._arguments import check_threads, check_word, empty
from cbquant.deepseek._add import THROUGH_CACHE
from cbquant.deepseek._inputs import (
    Sizes,
    bits,
    check_apart,
    check_output,
    dtype_of,
    floats,
    number,
    output,
    outputs,
    rows,
    whole,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_ITERS = 10_000


def _src_first(comb_layout: str) -> bool:
    return check_word("comb_layout", comb_layout, ("dst_src", "src_dst")) == "src_dst"


def mhc_sinkhorn_split(
    mix: Any,
    scale: Any,
    base: Any,
    iters: int = 20,
    eps: float = 1e-6,
    end: str = "rows",
    comb_layout: str = "dst_src",
    *,
    out: Sequence[NDArray[Any]] | None = None,
    threads: int | None = None,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The weights of four residual streams, from 24 numbers of each token.

    - pre = sigmoid(mix[0:4] * scale[0] + base[0:4]) + eps
    - post = 2 * sigmoid(mix[4:8] * scale[1] + base[4:8])
    - comb = softmax over src of (mix[8:24] * scale[2] + base[8:24]), as 4 x 4, + eps; then `iters` rounds of Sinkhorn's
      algorithm: columns (over dst) divided by their sums + eps, then rows (over src).

    Parameters
    ----------
    mix : array
        ``[T, 24]``: float32, float16 or bfloat16.
    scale, base : array
        ``[3]`` and ``[24]``.
    iters : int
        Rounds, from 1.
    eps : float
        Keeps divisors from 0; not negative.
    end : "rows" or "columns"
        "rows": `iters` times columns, then rows. "columns": once columns, then iters - 1 times rows, then columns.
    comb_layout : "dst_src" or "src_dst"
        How mix[8:24] is read as 4 x 4, and how comb is given.
    out : (ndarray, ndarray, ndarray), optional
        Where to write the three results: arrays of their shapes, apart from the inputs and each other, their last axes
        contiguous; float32, float16, bfloat16, or uint16 for the bits of bfloat16.
    threads : int, optional
        As for `cbquant.dequant`.

    Returns
    -------
    pre, post, comb : ndarray
        ``[T, 4]``, ``[T, 4]`` and ``[T, 4, 4]``, in mix's dtype.

    Raises
    ------
    ValueError
        Shapes that do not fit, an unknown word, a number out of its range, an `out` that does not fit or overlaps.
    TypeError
        A wrong type of array, dtype or number.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> mix = np.linspace(-1, 1, 24, dtype=np.float32)[None]
    >>> pre, post, comb = cbquant.deepseek.mhc_sinkhorn_split(mix, np.ones(3, np.float32), np.zeros(24, np.float32))
    >>> pre.shape, post.shape, comb.shape
    ((1, 4), (1, 4), (1, 4, 4))
    >>> comb.sum(axis=2).round(3)
    array([[1., 1., 1., 1.]], dtype=float32)
    """
    sizes = Sizes()
    numbers = floats(mix, "mix", "T 24", sizes)
    factors, offsets = floats(scale, "scale", "3", sizes), floats(base, "base", "24", sizes)
    rounds = whole(iters, "iters", 1, _MAX_ITERS)
    small = number(eps, "eps")
    if small < 0:
        raise ValueError(f"eps: expected 0 or more, got {small}")
    words = (check_word("end", end, ("rows", "columns")) == "columns", _src_first(comb_layout))
    inputs = {"mix": numbers, "scale": factors, "base": offsets}
    results = []
    for i, (place, dims) in enumerate(zip(outputs(out, 3), ("T 4", "T 4", "T 4 4"), strict=True)):
        name = f"out[{i}]"
        result = output(place, sizes.shape(dims), dtype_of(numbers), inputs, name=name)
        results.append(result)
        inputs[name] = result
    pre, post, comb = results
    _core.mhc_sinkhorn_split(
        *(bits(rows(numbers)), bits(rows(factors)), bits(rows(offsets)), bits(pre), bits(post), bits(comb)),
        *(rounds, small, *words, check_threads(threads)),
    )
    return pre, post, comb


def mhc_collapse(pre: Any, h: Any, *, out: NDArray[Any] | None = None, threads: int | None = None) -> NDArray[Any]:
    """Add up four residual streams, each with its weight: ``out[t] = sum over c of pre[t, c] * h[t, c]``.

    Parameters
    ----------
    pre : array
        ``[T, 4]``: float32, float16 or bfloat16.
    h : array
        ``[T, 4, D]``. Nothing is copied at any strides; contiguous along D or along T (the layout (D, 4, T), as
        ``h.transpose(2, 1, 0)``) is fastest.
    out : ndarray, optional
        Where to write: ``[T, D]`` at any strides, apart from the inputs; float32, float16, bfloat16, or uint16 for the
        bits of bfloat16.
    threads : int, optional
        As for `cbquant.dequant`.

    Returns
    -------
    ndarray
        ``[T, D]``: `out`, or a new array of h's dtype, in h's order in memory.

    Raises
    ------
    ValueError
        Shapes that do not fit, an `out` that does not fit or overlaps.
    TypeError
        A wrong type of array, dtype or number.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> h = np.float32([[[1, 2], [10, 20], [100, 200], [0, 0]]])
    >>> cbquant.deepseek.mhc_collapse(np.float32([[1, 0.5, 0.25, 9]]), h)
    array([[31., 62.]], dtype=float32)
    """
    sizes = Sizes()
    streams = floats(h, "h", "T 4 D", sizes)
    weights = floats(pre, "pre", "T 4", sizes)
    result = _output(out, sizes.shape("T D"), streams, {"pre": weights, "h": streams})
    stream = THROUGH_CACHE if out is None else -1
    _core.mhc_collapse(bits(weights), bits(streams), bits(result), check_threads(threads), None, stream)
    return result


def mhc_expand(
    block_out: Any,
    post: Any,
    comb: Any,
    residual: Any,
    comb_layout: str = "dst_src",
    *,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """The next residual streams: each is its share of the block's output plus a mixture of the streams before.

    ``out[t, i] = post[t, i] * block_out[t] + sum over j of comb[t, i, j] * residual[t, j]``

    Parameters
    ----------
    block_out : array
        ``[T, D]``: float32, float16 or bfloat16; any strides, as for all of them.
    post, comb : array
        ``[T, 4]`` and ``[T, 4, 4]``, as `mhc_sinkhorn_split` gives them.
    residual : array
        ``[T, 4, D]``. Nothing is copied at any strides; it is fastest where it, `block_out` and `out` are all
        contiguous along D, or all along T (the layout (D, 4, T)).
    comb_layout : "dst_src" or "src_dst"
        Which axis of comb is i, that of the new stream, above: dst.
    out : ndarray, optional
        Where to write: ``[T, 4, D]`` at any strides, apart from the inputs; float32, float16, bfloat16, or uint16 for
        the bits of bfloat16.
    threads : int, optional
        As for `cbquant.dequant`.

    Returns
    -------
    ndarray
        ``[T, 4, D]``: `out`, or a new array of residual's dtype, in its order in memory.

    Raises
    ------
    ValueError
        Shapes that do not fit, an unknown layout, an `out` that does not fit or overlaps.
    TypeError
        A wrong type of array, dtype or number.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> residual = np.float32([[[1], [2], [3], [4]]])
    >>> comb = np.eye(4, dtype=np.float32)[None, ::-1]
    >>> cbquant.deepseek.mhc_expand(np.float32([[10]]), np.float32([[0, 1, 2, 3]]), comb, residual)[0, :, 0]
    array([ 4., 13., 22., 31.], dtype=float32)
    """
    sizes = Sizes()
    streams = floats(residual, "residual", "T 4 D", sizes)
    block, weights = floats(block_out, "block_out", "T D", sizes), floats(post, "post", "T 4", sizes)
    matrix = floats(comb, "comb", "T 4 4", sizes)
    src_first = _src_first(comb_layout)
    inputs = {"block_out": block, "post": weights, "comb": matrix, "residual": streams}
    result = _output(out, streams.shape, streams, inputs)
    stream = THROUGH_CACHE if out is None else -1
    arrays = (bits(block), bits(weights), bits(matrix), bits(streams), bits(result))
    _core.mhc_expand(*arrays, src_first, check_threads(threads), None, stream)
    return result


def _output(
    out: NDArray[Any] | None, shape: tuple[int, ...], streams: NDArray[Any], inputs: dict[str, NDArray[Any]]
) -> NDArray[Any]:
    """`out` once it can take the result, or a new array in the order of the streams ``[T, 4, D]``."""
    if out is not None:
        check_output(out, shape)
        check_apart(out, inputs)
        return out
    by_stride = sorted(range(3), key=lambda axis: -abs(streams.strides[axis]))
    order = [axis for axis in by_stride if axis != 1 or len(shape) == 3]
    order = [axis - (axis > 1 and len(shape) == 2) for axis in order]
    memory: NDArray[Any] = empty(tuple(shape[axis] for axis in order), dtype_of(streams))
    result: NDArray[Any] = memory.transpose(tuple(order.index(axis) for axis in range(len(order))))
    return result
