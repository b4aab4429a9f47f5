"""Attention of one token on a GPU."""

from __future__ import annotations

from typing import Any

from cbquant.cuda.deepseek._operation import Operation, View, check_within
from cbquant.deepseek._attention import scale_of


def sdpa_decode_sink(
    q: Any,
    k: Any,
    v: Any,
    sink: Any,
    scale: float | None = None,
    lengths: Any = None,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Attention of one token over its cache, with a sink in each head's softmax.

    `cbquant.deepseek.sdpa_decode_sink`, whose page has the formula, on a GPU.

    Parameters
    ----------
    q, k, v : array
        ``[H, D]``, ``[Hkv, n, D]`` and ``[Hkv, n, Dv]``, or each with a batch axis in front; Dv up to 1024.
    sink : array or None
        ``[H]``.
    scale : float, optional
        1 / sqrt(D) by default.
    lengths : array of int, optional
        ``[B]``, with a batch. On the device nothing checks that they are in the cache.
    out : array, optional
        Where to write: ``[H, Dv]`` or ``[B, H, Dv]``.
    stream : int or stream, optional
        As for `cbquant.cuda.matmul`.

    Returns
    -------
    array
        `out`, or a new one of q's dtype.
    """
    op = Operation.of("sdpa_decode_sink", stream, q, k, v, out)
    views = _qkv(op, q, k, v)
    counts = None
    if lengths is not None:
        if "B" not in op.sizes:
            raise ValueError("lengths: expected None without a batch: slice k and v instead")
        counts = op.integers(lengths, "lengths", "B")
        check_within(counts, "lengths", 0, op.sizes["n"])
    return _attend(op, views, q, sink, scale, out, lengths=counts)


def sparse_sdpa_decode(
    q: Any,
    k: Any,
    v: Any,
    indices: Any,
    sink: Any = None,
    scale: float | None = None,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Attention of one token over the positions of a list: `cbquant.deepseek.sparse_sdpa_decode` on a GPU.

    Parameters
    ----------
    q, k, v, sink, scale, out, stream
        As for `sdpa_decode_sink`.
    indices : array of int
        ``[n_sel]`` or ``[B, n_sel]``; -1 is padding. On the device any other number that is no position is padding too;
        those of the host are checked.

    Returns
    -------
    array
        `out`, or a new one of q's dtype.
    """
    op = Operation.of("sparse_sdpa_decode", stream, q, k, v, indices, out)
    views = _qkv(op, q, k, v)
    chosen = op.integers(indices, "indices")
    if len(chosen.shape) == 2 and "B" in op.sizes:
        op.sizes.check("indices", "B n_sel", chosen.shape)
    elif len(chosen.shape) == 1:
        chosen = chosen.add_axis(0).broadcast(op.sizes.get("B", 1), chosen.shape[0])
    else:
        raise ValueError(f"indices: expected [n_sel]{' or [B, n_sel]' * ('B' in op.sizes)}, got shape {chosen.shape}")
    check_within(chosen, "indices", -1, op.sizes["n"] - 1)
    return _attend(op, views, q, sink, scale, out, indices=chosen)


def mla_decode(
    q_nope: Any,
    q_rope: Any,
    w_uk: Any,
    ckv: Any,
    k_rope: Any,
    scale: float | None = None,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Multi-head latent attention of one token, W_UK absorbed: `cbquant.deepseek.mla_decode` on a GPU.

    Parameters
    ----------
    q_nope, q_rope, w_uk, ckv, k_rope : array
        ``[H, d]``, ``[H, r]``, ``[H, d, R]``, ``[n, R]`` and ``[n, r]``; R up to 1024.
    scale : float, optional
        1 / sqrt(d + r) by default.
    out : array, optional
        Where to write: ``[H, R]``.
    stream : int or stream, optional
        As for `cbquant.cuda.matmul`.

    Returns
    -------
    array
        ``[H, R]``: `out`, or a new one of q_nope's dtype.
    """
    op = Operation.of("mla_decode", stream, q_nope, q_rope, w_uk, ckv, k_rope, out)
    plain, rotated = op.floats(q_nope, "q_nope", "H d"), op.floats(q_rope, "q_rope", "H r")
    up, cache = op.floats(w_uk, "w_uk", "H d R"), op.floats(ckv, "ckv", "n R")
    keys = op.floats(k_rope, "k_rope", "n r")
    _check_columns(op, "ckv", op.sizes["R"])
    factor = scale_of(scale, op.sizes["d"] + op.sizes["r"])
    y = op.result(out, op.sizes.shape("H R"), plain.dtype, q_nope)
    absorbed = op.temporary(op.sizes.shape("H R"))
    op.step("mla_absorb", plain, up, absorbed)
    rows = cache.with_axes(4)
    views = absorbed.with_axes(3), rows, rows, rotated.with_axes(3), keys.with_axes(4)
    op.step("attention", *views, None, None, None, y.with_axes(3), numbers=(factor,))
    return op.finish()[0]


def _qkv(op: Operation, q: Any, k: Any, v: Any) -> tuple[View, View, View]:
    query, keys = op.floats(q, "q"), op.floats(k, "k")
    batch = "B " if len(query.shape) == 3 else ""
    op.sizes.check("q", f"{batch}H D", query.shape)
    op.sizes.check("k", f"{batch}Hkv n D", keys.shape)
    values = keys if v is k else op.floats(v, "v", f"{batch}Hkv n Dv")
    heads, groups = op.sizes["H"], op.sizes["Hkv"]
    if groups == 0 or heads % groups:
        raise ValueError(f"q: expected a multiple of {groups} heads (those of k), got {heads}")
    op.sizes.setdefault("Dv", op.sizes["D"])
    _check_columns(op, "v", op.sizes["Dv"])
    return query, keys, values


def _attend(
    op: Operation,
    views: tuple[View, View, View],
    q: Any,
    sink: Any,
    scale: float | None,
    out: Any,
    lengths: View | None = None,
    indices: View | None = None,
) -> Any:
    sinks = None if sink is None else op.floats(sink, "sink", "H")
    factor = scale_of(scale, op.sizes["D"])
    query, keys, values = views
    y = op.result(out, (*query.shape[:-1], op.sizes["Dv"]), query.dtype, q)
    operands = query.with_axes(3), keys.with_axes(4), values.with_axes(4), None, None, sinks, lengths, indices
    op.step("attention", *operands, y.with_axes(3), numbers=(factor,))
    return op.finish()[0]


def _check_columns(op: Operation, name: str, columns: int) -> None:
    if columns > op.native.MOST_COLUMNS:
        raise ValueError(f"{name}: expected at most {op.native.MOST_COLUMNS} columns on a GPU, got {columns}")
