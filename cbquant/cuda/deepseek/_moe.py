"""moe_ffn on a GPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cbquant import _products
from cbquant._arguments import check_word
from cbquant.cuda import _driver, _operand, _stream
from cbquant.cuda._array import DeviceArray
from cbquant.cuda._call import Call, Input, Output, workspace
from cbquant.cuda._native import Native
from cbquant.cuda._products import moe_matmul
from cbquant.cuda._weight import PRECISIONS, Weight, check_product
from cbquant.cuda.deepseek._operation import Operation
from cbquant.deepseek import _inputs
from cbquant.deepseek._moe import limit_of


def moe_ffn(
    x: Any,
    gate: Weight,
    up: Weight,
    down: Weight,
    ids: Any,
    weights: Any,
    *,
    out: Any = None,
    stream: Any = None,
    precision: str = "bf16",
    limit: float | None = None,
) -> Any:
    """The weighted sum of ``down(silu(gate(x)) * up(x))`` of each token's experts: `cbquant.deepseek.moe_ffn` on a GPU.

    What lies between the three products is float32, in new memory of the device for each call.

    Parameters
    ----------
    x : array
        ``[T, K]``.
    gate, up, down : Weight
        ``[E, F, K]``, ``[E, F, K]`` and ``[E, N, F]``.
    ids, weights : array
        ``[T, k]``: experts, -1 is none; float32.
    out : array, optional
        Where to write: ``[T, N]``.
    stream, precision
        As for `cbquant.cuda.matmul`.
    limit : float, optional
        Above 0: gate(x) becomes at most that, and up(x) is clipped to -limit .. limit. By default nothing is clipped.

    Returns
    -------
    array
        ``[T, N]``: `out`, or a new one of x's dtype.
    """
    check_word("precision", precision, PRECISIONS)
    bound = limit_of(limit)
    for name, w in (("gate", gate), ("up", up), ("down", down)):
        check_product(w, name, (3,))
    device = gate.device
    native = _driver.ready("moe_ffn", device)
    op = Operation("moe_ffn", device, _stream.choose(stream, device, x, out, ids))
    tokens = op.floats(x, "x", "T K")
    op.sizes.check("gate", "E F K", gate.shape)
    op.sizes.check("up", "E F K", up.shape)
    op.sizes.check("down", "E N F", down.shape)
    t, e, f, n = (op.sizes[axis] for axis in "TEFN")
    chosen = _on_device(op, native, ids, lambda: _products._ids(ids, t, e).astype(np.int32), "ids", "int32")
    op.sizes.check("ids", "T k", chosen.shape)
    k = op.sizes["k"]
    factors = _on_device(op, native, weights, lambda: _products._factors(weights, (t, k)), "weights", "float32")
    op.sizes.check("weights", "T k", factors.shape)
    call = Call(native, "moe_ffn", down, op.stream)
    y = Output(call, out, x, tokens.dtype, (t, n))
    y.check_apart_from(Input(call, chosen, "ids"), Input(call, factors, "weights"))
    if 0 in y.shape:
        return y.finish([])
    if k == 0:
        with workspace(call) as places:
            y.clear(places)
            return y.finish(places)
    rows = x if _operand.is_on_device(x) else _uploaded(native, op, np.asarray(x))
    options: dict[str, Any] = {"stream": op.stream, "precision": precision}

    def new(*shape: int) -> DeviceArray:
        return DeviceArray.empty(shape, "float32", device, op.stream)

    inner, other, parts = new(t, k, f), new(t, k, f), new(t * k, 1, n)
    moe_matmul(rows, gate, chosen, out=inner, **options)
    moe_matmul(rows, up, chosen, out=other, **options)
    act = Operation("moe_ffn", device, op.stream)
    a, b = act.floats(inner, "inner"), act.floats(other, "other")
    same = act.result(inner, a.shape, "float32", inner, may_be="inner")
    act.step("swiglu", *(v.with_axes(4) for v in (a, b, same)), numbers=(math.inf if bound is None else bound,))
    act.finish()
    flat = DeviceArray(inner._memory, 0, (t * k, f), "float32", op.stream)
    each = DeviceArray(chosen._memory, chosen._offset, (t * k, 1), "int32", op.stream)
    moe_matmul(flat, down, each, out=parts, **options)
    with workspace(call) as places:
        z, by, of = ((a._memory, a._offset) for a in (parts, factors, chosen))
        native.moe_sum(t, k, n, z, by, of, y.rows(places), op.stream)
        return y.finish(places)


def _on_device(op: Operation, native: Native, array: Any, checked: Any, name: str, dtype: str) -> DeviceArray:
    """A contiguous array of that type on the device; one of the host is checked and copied."""
    if not _operand.is_on_device(array):
        return _uploaded(native, op, checked())
    operand = _operand.take(native, array, name, op.device, op.stream)
    operand.check_contiguous(name)
    if operand.dtype != dtype:
        raise TypeError(f"{name}: expected {dtype} on the device, got {operand.dtype}")
    return DeviceArray(operand.memory, operand.offset, operand.shape, dtype, op.stream)


def _uploaded(native: Native, op: Operation, array: np.ndarray[Any, Any]) -> DeviceArray:
    dtype = "int32" if array.dtype == np.int32 else _inputs.dtype_of(array)
    op._refuse_host("an argument")
    copy = DeviceArray.empty(array.shape, dtype, op.device, op.stream)
    if array.size:
        data = np.ascontiguousarray(_inputs.bits(array) if dtype != "int32" else array)
        native.upload(copy._memory, 0, data.reshape(-1).view(np.uint8), op.stream)
    return copy
