"""vector_add, the streams of a residual (mHC), partial_rope and compressor_pool on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cbquant._arguments import check_word
from cbquant.cuda.deepseek._operation import Operation, View
from cbquant.deepseek._inputs import flag, number, outputs, whole
from cbquant.deepseek._mhc import _MAX_ITERS, _src_first
from cbquant.deepseek._rope import base_of


def vector_add(a: Any, b: Any, *, out: Any = None, stream: Any = None) -> Any:
    """``a + b``, added in float32 and rounded once: `cbquant.deepseek.vector_add` on a GPU.

    Parameters
    ----------
    a, b : array
        The same shape, float32, float16 or bfloat16: ndarrays, or arrays on one device.
    out : array, optional
        Where to write; `a` or `b` itself, or apart from both.
    stream : int or stream, optional
        As for `cbquant.cuda.matmul`.

    Returns
    -------
    array
        `out`, or a new one of a's dtype: an ndarray for an ndarray, else of a's library.
    """
    op = Operation.of("vector_add", stream, a, b, out)
    first, second = op.floats(a, "a"), op.floats(b, "b")
    if second.shape != first.shape:
        raise ValueError(f"b: expected a's shape, {first.shape}, got {second.shape}")
    y = op.result(out, first.shape, first.dtype, a, may_be="b" if out is b else "a")
    op.step("vector_add", *(v.with_axes(4) for v in (first, second, y)))
    return op.finish()[0]


def mhc_sinkhorn_split(
    mix: Any,
    scale: Any,
    base: Any,
    iters: int = 20,
    eps: float = 1e-6,
    end: str = "rows",
    comb_layout: str = "dst_src",
    *,
    out: Sequence[Any] | None = None,
    stream: Any = None,
) -> tuple[Any, Any, Any]:
    """The weights of four residual streams: `cbquant.deepseek.mhc_sinkhorn_split` on a GPU, whose page says more.

    Parameters
    ----------
    mix, scale, base : array
        ``[T, 24]``, ``[3]`` and ``[24]``.
    iters, eps, end, comb_layout
        As on the CPU.
    out : (array, array, array), optional
        Where to write.
    stream : int or stream, optional
        As for `cbquant.cuda.matmul`.

    Returns
    -------
    pre, post, comb : array
        ``[T, 4]``, ``[T, 4]`` and ``[T, 4, 4]``, in mix's dtype.
    """
    places = outputs(out, 3)
    op = Operation.of("mhc_sinkhorn_split", stream, mix, scale, base, *places)
    operands = [op.floats(mix, "mix", "T 24"), op.floats(scale, "scale", "3"), op.floats(base, "base", "24")]
    rounds, small = whole(iters, "iters", 1, _MAX_ITERS), number(eps, "eps")
    if small < 0:
        raise ValueError(f"eps: expected 0 or more, got {small}")
    words = check_word("end", end, ("rows", "columns")) == "columns", _src_first(comb_layout)
    results = []
    for i, (place, dims) in enumerate(zip(places, ("T 4", "T 4", "T 4 4"), strict=True)):
        results.append(op.result(place, op.sizes.shape(dims), operands[0].dtype, mix, f"out[{i}]"))
    pre, post, comb = results
    comb = comb.transpose(0, 2, 1) if words[1] else comb
    op.step("mhc_sinkhorn_split", *operands, pre, post, comb, numbers=(rounds, small, *words))
    first, second, third = op.finish()
    return first, second, third


def mhc_collapse(pre: Any, h: Any, *, out: Any = None, stream: Any = None) -> Any:
    """``out[t] = sum over c of pre[t, c] * h[t, c]``: `cbquant.deepseek.mhc_collapse` on a GPU.

    Parameters
    ----------
    pre, h : array
        ``[T, 4]`` and ``[T, 4, D]``, at any strides.
    out : array, optional
        Where to write: ``[T, D]``.
    stream : int or stream, optional
        As for `cbquant.cuda.matmul`.

    Returns
    -------
    array
        ``[T, D]``: `out`, or a new one of h's dtype.
    """
    op = Operation.of("mhc_collapse", stream, h, pre, out)
    weights, streams = op.floats(pre, "pre", "T 4"), op.floats(h, "h", "T 4 D")
    y = op.result(out, op.sizes.shape("T D"), streams.dtype, h)
    op.step("mhc_collapse", weights, streams, y)
    return op.finish()[0]


def mhc_expand(
    block_out: Any,
    post: Any,
    comb: Any,
    residual: Any,
    comb_layout: str = "dst_src",
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Each stream is post of it times the output of the block, plus a mixture of the residual streams:
    `cbquant.deepseek.mhc_expand` on a GPU.

    Parameters
    ----------
    block_out, post, comb, residual : array
        ``[T, D]``, ``[T, 4]``, ``[T, 4, 4]`` and ``[T, 4, D]``, at any strides.
    comb_layout : "dst_src" or "src_dst"
        Which axis of `comb` is which.
    out : array, optional
        Where to write: ``[T, 4, D]``.
    stream : int or stream, optional
        As for `cbquant.cuda.matmul`.

    Returns
    -------
    array
        ``[T, 4, D]``: `out`, or a new one of residual's dtype.
    """
    op = Operation.of("mhc_expand", stream, residual, block_out, post, comb, out)
    x, weights = op.floats(block_out, "block_out", "T D"), op.floats(post, "post", "T 4")
    mixture, streams = op.floats(comb, "comb", "T 4 4"), op.floats(residual, "residual", "T 4 D")
    if _src_first(comb_layout):
        mixture = mixture.transpose(0, 2, 1)
    y = op.result(out, op.sizes.shape("T 4 D"), streams.dtype, residual)
    op.step("mhc_expand", x, weights, mixture, streams, y)
    return op.finish()[0]


def partial_rope(
    x: Any,
    positions: Any,
    n_rot: int = 64,
    theta: float = 10000.0,
    inverse: bool = False,
    pairs: str = "split",
    *,
    frequencies: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Turn the last `n_rot` elements of each head by its position: `cbquant.deepseek.partial_rope` on a GPU.

    Parameters
    ----------
    x : array
        ``[..., T, heads, head_dim]`` or ``[T, head_dim]``.
    positions : array
        ``[T]``: integers or real numbers; on the device int32, int64, float32 or float64.
    n_rot, theta, inverse, pairs
        As on the CPU.
    frequencies : array, optional
        ``[n_rot/2]``, as on the CPU; on the device of a type that positions may have.
    out : array, optional
        Where to write: of x's shape and dtype; x itself, or apart from it.
    stream : int or stream, optional
        As for `cbquant.cuda.matmul`.

    Returns
    -------
    array
        `out`, or a new one of x's dtype.
    """
    op = Operation.of("partial_rope", stream, x, positions, out)
    values = op.floats(x, "x")
    if len(values.shape) < 2:
        raise ValueError(f"x: expected [..., T, heads, head_dim] or [T, head_dim], got shape {values.shape}")
    op.sizes["T"] = values.shape[0 if len(values.shape) == 2 else -3]
    places = _reals(op, positions, "positions", "T")
    width = values.shape[-1]
    count = whole(n_rot, "n_rot", 2, max(width, 2))
    if count % 2 or count > width:
        raise ValueError(f"n_rot: expected an even number up to head_dim = {width}, got {count}")
    base, rates = base_of(theta, frequencies is not None), None
    if frequencies is not None:
        rates = _reals(op, frequencies, "frequencies", str(count // 2))
    words = flag(inverse, "inverse"), check_word("pairs", pairs, ("split", "interleaved")) == "interleaved"
    y = op.result(out, values.shape, values.dtype, x, may_be="x")
    if y.dtype != values.dtype:
        raise TypeError(f"out: expected the dtype of x, {values.dtype}, got {y.dtype}")
    views = [(v.add_axis(1) if len(v.shape) == 2 else v).with_axes(4) for v in (values, y)]
    op.step("partial_rope", views[0], places, rates, views[1], numbers=(count, base, *words))
    return op.finish()[0]


def _reals(op: Operation, x: Any, name: str, dims: str) -> View:
    """Integers or real numbers; those of the host are looked at."""
    view = op.integers(x, name, dims, ("float64", "float32"))
    values = view.source.host
    if values is not None:
        bad = values[~(np.abs(values) <= 2.0**53)]
        if bad.size:
            raise ValueError(f"{name}: expected finite numbers up to 2^53, got {bad[0]:g}")
    return view


def compressor_pool(gate: Any, kv: Any, ape: Any, ape_on: str = "value", *, out: Any = None, stream: Any = None) -> Any:
    """Of each window the sum over its entries, weighted by the softmax of their gates.

    `cbquant.deepseek.compressor_pool` on a GPU.

    Parameters
    ----------
    gate, kv, ape : array
        ``[W, P, D]`` or ``[W, P, 1]``, ``[W, P, D]`` and ``[P, D]``.
    ape_on : "value" or "gate"
        What `ape` is added to.
    out : array, optional
        Where to write: ``[W, D]``.
    stream : int or stream, optional
        As for `cbquant.cuda.matmul`.

    Returns
    -------
    array
        ``[W, D]``: `out`, or a new one of kv's dtype.
    """
    op = Operation.of("compressor_pool", stream, kv, gate, ape, out)
    values, extra = op.floats(kv, "kv", "W P D"), op.floats(ape, "ape", "P D")
    gates = op.floats(gate, "gate")
    one = gates.shape[-1:] == (1,)
    op.sizes.check("gate", "W P 1" if one else "W P D", gates.shape)
    on_gate = check_word("ape_on", ape_on, ("value", "gate")) == "gate"
    y = op.result(out, op.sizes.shape("W D"), values.dtype, kv)
    op.step("compressor_pool", gates.broadcast(*values.shape), values, extra, y, numbers=(on_gate,))
    return op.finish()[0]
