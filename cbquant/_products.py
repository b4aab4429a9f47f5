"""Products with compressed weights: arguments are checked and shaped here, the work is done in C."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant import _core
from cbquant._arguments import (
    DTYPES,
    as_numbers,
    check_native,
    check_out,
    check_result,
    check_threads,
    check_word,
    empty,
    float_dtype_name,
)
from cbquant._weights import Weights, as_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

PRECISIONS = ("f32", "bf16", "q8", "q16")


def matmul(
    x: Any,
    w: Any,
    fmt: str | None = None,
    shape: Sequence[int] | None = None,
    precision: str = "f32",
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Multiply with block-quantized weights, which stay compressed: ``y[..., N] = x[..., K] @ W[N, K].T``.

    Parameters
    ----------
    x : array
        ``[..., K]`` in float32, float16 or bfloat16; any strides.
    w : QuantTensor, buffer or array
        The weights ``[N, K]``: a `QuantTensor`, or blocks as for `dequant` with `fmt` and `shape` (a uint8 array
        ``[N, row bytes]`` needs no `shape`).
    fmt : str, optional
        Name of the format, where `w` is no `QuantTensor`.
    shape : (int, int), optional
        N and K, where they are not those of `w`.
    precision : "f32", "bf16", "q8" or "q16"
        What the products are made of; sums are float32 in all.

        - "f32": the exact weights and x as float32.
        - "bf16": both rounded once to bfloat16.
        - "q8": x rounded to 8-bit integers under a scale for each 32 elements (256 for formats of 256 elements, as
          ggml does); integer products with the codes.
        - "q16": the same with 16-bit integers, for each 256 elements.

        Formats without integer codes (plain types; planes of fp8, mxfp8, mxfp6, nf4 and fp4) know "f32" and "bf16"
        only.
    out : ndarray, optional
        Where to write: C-contiguous, ``[..., N]``, float32, float16 or bfloat16 (uint16 takes its bits).
    threads : int, optional
        As for `dequant`. The result does not depend on it.

    Returns
    -------
    ndarray
        `out`, or a new array of x's dtype.

    Raises
    ------
    ValueError
        Shapes that do not fit, an unknown format or precision, an `out` that does not fit or overlaps; in "q8" and
        "q16" a NaN or an infinity in `x`.
    TypeError
        A wrong type of array, dtype or number.

    Examples
    --------
    Two rows of q8_0, each a float16 scale 0.5 and 32 signed bytes.

    >>> import cbquant, numpy as np
    >>> rows = bytes.fromhex("0038") + bytes(range(32)) + bytes.fromhex("0038") + bytes(32)
    >>> w = cbquant.QuantTensor(rows, "q8_0", (2, 32))
    >>> cbquant.matmul(np.ones((1, 32), np.float32), w)
    array([[248.,   0.]], dtype=float32)
    """
    values, dtype = _floats(x, "x")
    weights = as_weights(w, fmt, shape)
    n, k = weights.shape
    _check_precision(precision, weights)
    if values.ndim == 0:
        raise ValueError("x: expected at least one dimension, got a scalar")
    if values.shape[-1] != k:
        raise ValueError(f"x: expected a last dimension of {k} (K of the weights), got shape {values.shape}")
    result_shape = (*values.shape[:-1], n)
    if not k:
        check_result(result_shape)
    if out is None:
        result = target = empty(result_shape, dtype)
    else:
        result, target = out, check_out(out, result_shape)
        _check_apart(out, values, weights, "w")
    m = math.prod(values.shape[:-1])
    out_dtype = float_dtype_name(result) or dtype
    weights.multiply(_bits(values), dtype, _bits(target), out_dtype, m, precision, check_threads(threads))
    return result


def moe_matmul(
    x: Any,
    experts: Any,
    ids: Any,
    weights: Any = None,
    *,
    fmt: str | None = None,
    shape: Sequence[int] | None = None,
    precision: str = "f32",
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Multiply each token with the experts that it chose, block-quantized weights that stay compressed.

    Tokens are grouped by expert: each expert's weights are read once, and those that nobody chose not at all.

    Parameters
    ----------
    x : array
        ``[T, K]``, a row for each token, in float32, float16 or bfloat16; any strides.
    experts : QuantTensor, buffer or array
        The weights ``[E, N, K]``: a `QuantTensor`, or blocks with `fmt` and `shape`.
    ids : array of int
        ``[T, k]``: the experts of each token, 0 to E - 1; -1 is none, a row of zeros.
    weights : array, optional
        ``[T, k]``: what each expert's result is multiplied with before they are added, as float32.
    fmt, shape, precision, threads
        As for `matmul`; the shape is (E, N, K).
    out : ndarray, optional
        Where to write: C-contiguous, of the result's shape, as for `matmul`.

    Returns
    -------
    ndarray
        ``[T, N]`` with `weights`, else ``[T, k, N]``; `out`, or a new array of x's dtype.

    Raises
    ------
    ValueError
        Shapes that do not fit, an expert that is not there, and as `matmul`.
    TypeError
        A wrong type of array, dtype or number; ids that are not integers.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> rows = b"".join(bytes.fromhex("003c") + bytes([value] * 32) for value in (1, 2, 3))
    >>> experts = cbquant.QuantTensor(rows, "q8_0", (3, 1, 32))
    >>> x = np.ones((2, 32), np.float32)
    >>> cbquant.moe_matmul(x, experts, [[2, 0], [1, -1]])[..., 0]
    array([[96., 32.],
           [64.,  0.]], dtype=float32)
    >>> cbquant.moe_matmul(x, experts, [[2, 0], [1, -1]], weights=[[0.5, 0.5], [1, 1]])[:, 0]
    array([64., 64.], dtype=float32)
    """
    values, dtype = _floats(x, "x")
    matrices = as_weights(experts, fmt, shape, "experts", ("E", "N", "K"))
    n_experts, n, k = matrices.shape
    _check_precision(precision, matrices)
    if values.ndim != 2 or values.shape[1] != k:
        raise ValueError(f"x: expected [T, {k}] (K of the experts), got shape {values.shape}")
    chosen = _ids(ids, len(values), n_experts)
    factors = None if weights is None else _factors(weights, chosen.shape)
    result_shape = (len(values), n) if factors is not None else (*chosen.shape, n)
    if out is not None:
        check_out(out, result_shape)
        _check_apart(out, values, matrices, "experts")
    count = check_threads(threads)
    if not k:
        check_result((*chosen.shape, n))
    parts = np.zeros((*chosen.shape, n), np.float32)
    for expert, tokens, slots in _groups(chosen):
        y = np.empty((len(tokens), n), np.float32)
        taken = _bits(values[tokens])
        matrices.matrix(expert).multiply(taken, dtype, y, "float32", len(tokens), precision, count)
        parts[tokens, slots] = y
    if factors is not None:
        # One slot after the other, so that the order of the sum does not depend on NumPy.
        total = np.zeros(result_shape, np.float32)
        factors[chosen < 0] = 0
        with np.errstate(over="ignore", invalid="ignore"):  # as the products themselves
            for slot in range(chosen.shape[1]):
                total += factors[:, slot, None] * parts[:, slot]
        parts = total
    result = empty(result_shape, dtype) if out is None else out
    return _store(result, parts)


def _floats(x: Any, name: str) -> tuple[NDArray[Any], str]:
    """`x` as a contiguous array, and the name of its dtype."""
    array = as_numbers(x, name)
    dtype = float_dtype_name(array)
    if dtype is None and array.dtype.name in DTYPES:
        check_native(array.dtype, name)
    if dtype is None or array.dtype == np.uint16:
        hint = "; .astype(np.float32) makes it so" if array.dtype.kind in "biuf" else ""
        raise TypeError(f"{name}: expected float32, float16 or bfloat16, got dtype {array.dtype}{hint}")
    return np.ascontiguousarray(array) if array.ndim else array, dtype


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """bfloat16 as uint16, which C takes for it; other types as they are."""
    return array if array.dtype.kind != "V" else array.view(np.uint16)


def _check_precision(precision: str, weights: Weights) -> None:
    check_word("precision", precision, PRECISIONS)
    weights.check_precision(precision)


def _check_apart(out: NDArray[Any], values: NDArray[Any], weights: Weights, name: str) -> None:
    if any(np.may_share_memory(part, out) for part in (values, *weights.memory)):
        raise ValueError(f"out: expected memory of its own, it overlaps x or {name}")


def _ids(ids: Any, tokens: int, n_experts: int) -> NDArray[np.int64]:
    array = as_numbers(ids, "ids")
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"ids: expected integers, got dtype {array.dtype}")
    check_native(array.dtype, "ids")
    if array.ndim != 2 or len(array) != tokens:
        raise ValueError(f"ids: expected [T, k] with T = {tokens} rows, as x has, got shape {array.shape}")
    if array.size and not -1 <= int(array.min()) <= int(array.max()) < n_experts:
        worst = int(array.max()) if int(array.max()) >= n_experts else int(array.min())
        raise ValueError(f"ids: expected -1 to {n_experts - 1}, got {worst}")
    return array.astype(np.int64)


def _factors(weights: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    array = as_numbers(weights, "weights")
    if array.shape != shape:
        raise ValueError(f"weights: expected the shape of ids, {shape}, got {array.shape}")
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise TypeError(f"weights: expected real numbers, got dtype {array.dtype}")
    check_native(array.dtype, "weights")
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def _groups(ids: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.intp], NDArray[np.intp]]]:
    """For each expert that was chosen: its number, and the rows and columns of `ids` where it stands."""
    flat = ids.reshape(-1)
    if not flat.size:
        return
    order = np.argsort(flat, kind="stable")
    experts, begins = np.unique(flat[order], return_index=True)
    for expert, places in zip(experts.tolist(), np.split(order, begins[1:]), strict=True):
        if expert >= 0:
            yield expert, places // ids.shape[1], places % ids.shape[1]


def _store(result: NDArray[Any], values: NDArray[np.float32]) -> NDArray[Any]:
    """`values` rounded once to the dtype of `result`, where uint16 stands for bfloat16."""
    dtype = float_dtype_name(result) or "float32"
    _core.dequant(values.reshape(-1).view(np.uint8), "f32", _bits(result).reshape(-1), dtype)
    return result
