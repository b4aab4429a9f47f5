"""Products on a GPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cbquant import _products
from cbquant._arguments import check_word
from cbquant.cuda import _driver, _operand, _stream
from cbquant.cuda._call import Call, Input, Output, floats, workspace
from cbquant.cuda._device import set_last_kernel
from cbquant.cuda._weight import PRECISIONS, Weight, check_product, place_of, problem


def matmul(x: Any, w: Weight, out: Any = None, stream: Any = None, precision: str = "bf16") -> Any:
    """Multiply with weights on a GPU, which stay compressed: ``y[..., N] = x[..., K] @ W[N, K].T``.

    W counts as its decoded values rounded to bfloat16, sums are float32; the same call on the same kind of GPU gives
    the same bits.

    Parameters
    ----------
    x : array
        ``[..., K]`` in float32, float16 or bfloat16: an ndarray, or an array on w's device (torch, CuPy, JAX, Numba,
        DeviceArray) whose rows lie at one distance.
    w : Weight
        ``[N, K]``, of a format of blocks, of planes, or float32, float16 or bfloat16.
    out : array, optional
        Where to write, ``[..., N]`` in float32, float16 or bfloat16 (uint16 takes its bits): on w's device, rows at one
        distance, or an ndarray. With x and `out` on the device nothing is allocated and nothing waited for; the call
        can be captured in a CUDA graph, once `reserve` or an earlier call has made room on its stream.
    stream : int or stream, optional
        Where to work: a handle, or a stream of torch, CuPy or cuda.core. Without it, the one on which x's library works
        now, else the default stream.
    precision : "bf16" or "f32"
        "bf16" rounds x to bfloat16 too, and uses tensor cores; "f32" keeps x in float32.

    Returns
    -------
    array
        `out`, or a new one of x's dtype: an ndarray for an ndarray; else of x's library, or a `DeviceArray` where that
        takes no DLPack.

    Raises
    ------
    CudaError
        What CUDA refuses; while a graph is captured, an allocation, a copy to or from an ndarray, too little workspace.
    ValueError
        Shapes that do not fit, a weight without products, arrays on other devices, an `out` that overlaps an input.
    TypeError
        A wrong type of array, weight, dtype, precision or stream.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> w = cbquant.QuantTensor(bytes.fromhex("0038") + bytes(range(32)), "q8_0", (1, 32))
    >>> if cbquant.cuda.is_available():
    ...     y = cbquant.cuda.matmul(np.ones((4, 32), np.float32), cbquant.cuda.load(w))
    """
    check_product(w, "w", (2,))
    check_word("precision", precision, PRECISIONS)
    n, k = w.shape
    native = _driver.ready("matmul", w.device)
    call = Call(native, "matmul", w, _stream.choose(stream, w.device, x, out))
    rows = floats(call, x)
    if not rows.shape or rows.shape[-1] != k:
        raise ValueError(f"x: expected a last dimension of {k} (K of the weights), got shape {rows.shape}")
    y = Output(call, out, x, rows.dtype, (*rows.shape[:-1], n))
    y.check_apart_from(rows)
    m = math.prod(rows.shape[:-1])
    if m == 0 or n == 0:
        return y.finish([])
    wanted = problem(w, m, 1, precision)
    room = call.need(native.product_workspace(w.device, wanted)) if k else 0
    with workspace(call) as places:
        if k:
            operands = (rows.rows(places), place_of(w), y.rows(places))
            set_last_kernel(native.matmul(wanted, *operands, None, places[room], call.stream))
        else:
            y.clear(places)
        return y.finish(places)


def moe_matmul(
    x: Any,
    experts: Weight,
    ids: Any,
    weights: Any = None,
    *,
    out: Any = None,
    stream: Any = None,
    precision: str = "bf16",
) -> Any:
    """Multiply each token with the experts that it chose, on a GPU.

    The ids are sorted on the device: each expert's weights are read once, those that nobody chose not at all, and the
    host never waits.

    Parameters
    ----------
    x : array
        ``[T, K]``, a row for each token, as for `matmul`.
    experts : Weight
        ``[E, N, K]``, of what `matmul` takes.
    ids : array of int
        ``[T, k]``: the experts of each token; -1 is none, a row of zeros. On the device int32, one after the other,
        where any other number that is no expert counts as none too; an ndarray or a list is checked and copied.
    weights : array, optional
        ``[T, k]``: what each expert's result is multiplied with before they are added, in float32. On the device, one
        after the other; an ndarray or a list is copied.
    out, stream, precision
        As for `matmul`; what `out` must have is the result's shape.

    Returns
    -------
    array
        ``[T, N]`` with `weights`, else ``[T, k, N]``; as for `matmul`.

    Raises
    ------
    CudaError, ValueError, TypeError
        As `matmul`; an expert that is not there, where the ids are on the host.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> rows = b"".join(bytes.fromhex("003c") + bytes([value] * 32) for value in (1, 2, 3))
    >>> experts = cbquant.QuantTensor(rows, "q8_0", (3, 1, 32))
    >>> if cbquant.cuda.is_available():
    ...     w = cbquant.cuda.load(experts)
    ...     y = cbquant.cuda.moe_matmul(np.ones((2, 32), np.float32), w, [[2, 0], [1, -1]])
    """
    check_product(experts, "experts", (3,))
    check_word("precision", precision, PRECISIONS)
    n_experts, n, k = experts.shape
    native = _driver.ready("moe_matmul", experts.device)
    call = Call(native, "moe_matmul", experts, _stream.choose(stream, experts.device, x, out, ids))
    rows = floats(call, x)
    if len(rows.shape) != 2 or rows.shape[1] != k:
        raise ValueError(f"x: expected [T, {k}] (K of the experts), got shape {rows.shape}")
    chosen = _ids(call, ids, rows.shape[0], n_experts)
    tokens, picks = chosen.shape
    factors = None if weights is None else _factors(call, weights, chosen.shape)
    y = Output(call, out, x, rows.dtype, (tokens, picks, n) if factors is None else (tokens, n))
    y.check_apart_from(rows, chosen, *(() if factors is None else (factors,)))
    if 0 in y.shape:
        return y.finish([])
    if k == 0 or n_experts == 0 or picks == 0:
        with workspace(call) as places:
            y.clear(places)
            return y.finish(places)
    wanted = problem(experts, tokens, picks, precision)
    room = call.need(native.product_workspace(experts.device, wanted))
    parts = call.need(4 * tokens * picks * n) if factors is not None else 0
    with workspace(call) as places:
        numbers = chosen.place(places)
        target = y.rows(places) if factors is None else (*places[parts], "float32", n)
        operands = (rows.rows(places), place_of(experts), target, numbers, places[room], call.stream)
        set_last_kernel(native.matmul(wanted, *operands))
        if factors is not None:
            sums = (places[parts], factors.place(places), numbers, y.rows(places), call.stream)
            native.moe_sum(tokens, picks, n, *sums)
        return y.finish(places)


def _ids(call: Call, ids: Any, tokens: int, n_experts: int) -> Input:
    if not _operand.is_on_device(ids):
        return Input(call, _products._ids(ids, tokens, n_experts).astype(np.int32), "ids")
    taken = Input(call, ids, "ids")
    if taken.dtype != "int32":
        raise TypeError(f"ids: expected int32 on the device, got {taken.dtype}")
    if len(taken.shape) != 2 or taken.shape[0] != tokens:
        raise ValueError(f"ids: expected [T, k] with T = {tokens} rows, as x has, got shape {taken.shape}")
    return _contiguous(taken, "ids")


def _factors(call: Call, weights: Any, shape: tuple[int, ...]) -> Input:
    if not _operand.is_on_device(weights):
        return Input(call, np.ascontiguousarray(_products._factors(weights, shape)), "weights")
    taken = Input(call, weights, "weights")
    if taken.dtype != "float32":
        raise TypeError(f"weights: expected float32 on the device, got {taken.dtype}")
    if taken.shape != shape:
        raise ValueError(f"weights: expected the shape of ids, {shape}, got {taken.shape}")
    return _contiguous(taken, "weights")


def _contiguous(taken: Input, name: str) -> Input:
    if taken.operand is not None:
        taken.operand.check_contiguous(name)
    return taken
