"""The router and the indexer on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cbquant._arguments import check_word
from cbquant.cuda._operand import is_on_device
from cbquant.cuda.deepseek._operation import Operation, View, check_within
from cbquant.deepseek._attention import most, of_lists
from cbquant.deepseek._inputs import MAX_POSITIONS, flag, number, outputs, whole


def router_sqrtsoftplus(
    logits: Any, bias: Any, *, out: Sequence[Any] | None = None, stream: Any = None
) -> tuple[Any, Any]:
    """sqrt(softplus(logit)), and that plus the bias: `cbquant.deepseek.router_sqrtsoftplus` on a GPU.

    Parameters
    ----------
    logits, bias : array
        ``[T, E]`` and ``[E]``.
    out : (array, array), optional
        Where to write.
    stream : int or stream, optional
        As for `cbquant.cuda.matmul`.

    Returns
    -------
    unbiased, biased : array
        ``[T, E]``, in logits' dtype.
    """
    places = outputs(out, 2)
    op = Operation.of("router_sqrtsoftplus", stream, logits, bias, *places)
    x, offsets = op.floats(logits, "logits", "T E"), op.floats(bias, "bias", "E")
    results = [op.result(place, x.shape, x.dtype, logits, f"out[{i}]") for i, place in enumerate(places)]
    op.step("router_sqrtsoftplus", x, offsets, *results)
    first, second = op.finish()
    return first, second


def route(
    logits: Any,
    bias: Any,
    k: int,
    scale: float = 1.0,
    normalize: bool = False,
    scoring: str = "sqrtsoftplus",
    *,
    out: Sequence[Any] | None = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """The experts of each token and their weights: `cbquant.deepseek.route` on a GPU.

    Parameters
    ----------
    logits, bias : array
        ``[T, E]`` and ``[E]``.
    k, scale, normalize, scoring
        As on the CPU.
    out : (array, array), optional
        Where to write: int32, contiguous, and a float type.
    stream : int or stream, optional
        As for `cbquant.cuda.matmul`.

    Returns
    -------
    ids, weights : array
        ``[T, k]``: int32, by falling biased score; and in logits' dtype.
    """
    places = outputs(out, 2)
    op = Operation.of("route", stream, logits, bias, *places)
    x, offsets = op.floats(logits, "logits", "T E"), op.floats(bias, "bias", "E")
    count = whole(k, "k", 1, op.sizes["E"])
    sigmoid = check_word("scoring", scoring, ("sqrtsoftplus", "sigmoid")) == "sigmoid"
    numbers = number(scale, "scale"), flag(normalize, "normalize"), sigmoid
    shape = (op.sizes["T"], count)
    ids = contiguous(op.result(places[0], shape, "int32", logits, "out[0]"), "out[0]")
    weights = op.result(places[1], shape, x.dtype, logits, "out[1]")
    op.step("route", x, offsets, ids, weights, numbers=numbers)
    first, second = op.finish()
    return first, second


def indexer_score(q: Any, k: Any, w: Any, *, out: Any = None, stream: Any = None) -> Any:
    """``score[n] = sum over h of w[h] relu(q[h] . k[n])``: `cbquant.deepseek.indexer_score` on a GPU.

    Parameters
    ----------
    q, k, w : array
        ``[H, D]``, ``[n, D]`` or ``[n, H, D]``, and ``[H]``; of a batch ``[B, H, D]`` and ``[B, H]``.
    out : array, optional
        Where to write: float32.
    stream : int or stream, optional
        As for `cbquant.cuda.matmul`.

    Returns
    -------
    array
        float32 ``[n]`` or ``[B, n]``.
    """
    op = Operation.of("indexer_score", stream, q, k, w, out)
    operands, shape = _scored(op, q, k, w)
    y = op.result(out, shape, "float32", q)
    if y.dtype != "float32":
        raise TypeError(f"out: expected float32, got {y.dtype}")
    op.step("indexer_score", *operands, None, y.with_axes(2))
    return op.finish()[0]


def indexer_topk(score: Any, k: int, *, lengths: Any = None, out: Any = None, stream: Any = None) -> Any:
    """The indices of the k largest scores, by falling score; equal ones by rising index, NaN last:
    `cbquant.deepseek.indexer_topk` on a GPU.

    Parameters
    ----------
    score : array
        ``[n]`` or ``[B, n]``.
    k : int
        0 to n, with `lengths` any number; up to 512 is fast.
    lengths : array of int, optional
        ``[B]``, with a batch: only the first scores of each row count. On the device nothing checks that they are 0 to
        n.
    out : array, optional
        Where to write: int32, contiguous.
    stream : int or stream, optional
        As for `cbquant.cuda.matmul`.

    Returns
    -------
    array
        int32 ``[k]`` or ``[B, k]``, with -1 where a row has fewer.
    """
    op = Operation.of("indexer_topk", stream, score, lengths, out)
    values = op.floats(score, "score")
    if len(values.shape) not in (1, 2):
        raise ValueError(f"score: expected [n] or [B, n], got shape {values.shape}")
    counts = _lengths(op, lengths, values.shape[:-1], values.shape[-1])
    count = whole(k, "k", 0, MAX_POSITIONS if counts is not None else min(values.shape[-1], MAX_POSITIONS))
    y = contiguous(op.result(out, (*values.shape[:-1], count), "int32", score), "out")
    op.step("indexer_topk", values.with_axes(2), counts, y.with_axes(2))
    return op.finish()[0]


def indexer_select(
    q: Any, k: Any, w: Any, topk: int, *, lengths: Any = None, out: Any = None, stream: Any = None
) -> Any:
    """The positions with the largest scores: `indexer_topk` of `indexer_score`, on a GPU.

    Where `topk` is more than 512 or heads have keys of their own, scores take 4 n bytes of the workspace for each query
    of a batch; else only the best of each piece of the cache are kept.

    Parameters
    ----------
    q, k, w : array
        As for `indexer_score`.
    topk : int
        0 to n, with `lengths` any number.
    lengths : array of int, optional
        ``[B]``, as for `indexer_topk`: only the first positions count for each query.
    out : array, optional
        Where to write: int32, contiguous.
    stream : int or stream, optional
        As for `cbquant.cuda.matmul`.

    Returns
    -------
    array
        int32 ``[topk]`` or ``[B, topk]``, with -1 where there are fewer.
    """
    op = Operation.of("indexer_select", stream, q, k, w, lengths, out)
    operands, shape = _scored(op, q, k, w)
    counts = _lengths(op, lengths, shape[:-1], shape[-1])
    count = whole(topk, "topk", 0, MAX_POSITIONS if counts is not None else min(shape[-1], MAX_POSITIONS))
    y = contiguous(op.result(out, (*shape[:-1], count), "int32", q), "out")
    if count <= op.native.MOST_SELECTED and operands[1].shape[1] == 1:
        op.step("indexer_select", *operands, counts, y.with_axes(2))
        return op.finish()[0]
    scores = op.temporary(shape).with_axes(2)
    op.step("indexer_score", *operands, counts, scores)
    op.step("indexer_topk", scores, counts, y.with_axes(2))
    return op.finish()[0]


def gather_list(topk: Any, n_kv: Any, window: Any = 128, *, out: Any = None, stream: Any = None) -> Any:
    """The positions that an indexer chose and the last ones of the cache, each once, rising.

    `cbquant.deepseek.gather_list` on a GPU. How many there are is known on the device only, so that lists have room
    for all and -1 at their ends, which `sparse_sdpa_decode` leaves out.

    Parameters
    ----------
    topk : array of int
        ``[k]`` or ``[B, k]``, k up to 1024: positions in any order. What is no position of the cache is left out.
    n_kv : int, or array of int
        Positions in the cache, or ``[B]``: those that there are for each list. On the device nothing checks them.
    window : int, or array of int
        How many of the last ones are in every list, or ``[B]``, on the host: in each.
    out : array, optional
        Where to write: int32, contiguous, of the result's shape.
    stream : int or stream, optional
        As for `cbquant.cuda.matmul`.

    Returns
    -------
    array
        int32 ``[m]`` or ``[B, m]`` with m the largest min(n_kv, k + window), or k + window where n_kv is on the device.
    """
    op = Operation.of("gather_list", stream, topk, n_kv, out)
    chosen = op.integers(topk, "topk")
    if len(chosen.shape) not in (1, 2):
        raise ValueError(f"topk: expected [k] or [B, k], got shape {chosen.shape}")
    if chosen.shape[-1] > op.native.MOST_LISTED:
        raise ValueError(f"topk: expected at most {op.native.MOST_LISTED} positions on a GPU, got {chosen.shape[-1]}")
    if is_on_device(window):
        raise TypeError("window: expected numbers on the host: they say how long lists are")
    batch = chosen.shape[:-1]
    n, last = MAX_POSITIONS if is_on_device(n_kv) else of_lists(n_kv, "n_kv", batch), of_lists(window, "window", batch)
    sizes = _of_rows(op, n_kv, "n_kv", batch) if is_on_device(n_kv) or not isinstance(n, int) else None
    windows = None if isinstance(last, int) else _of_rows(op, window, "window", batch)
    shape = (*batch, most(n, last, chosen.shape[-1]))
    y = contiguous(op.result(out, shape, "int32", topk), "out")
    numbers = n if isinstance(n, int) else 0, last if isinstance(last, int) else 0
    op.step("gather_list", chosen.with_axes(2), sizes, windows, y.with_axes(2), numbers=numbers)
    return op.finish()[0]


def _scored(op: Operation, q: Any, k: Any, w: Any) -> tuple[tuple[View, View, View], tuple[int, ...]]:
    """q ``[B, H, D]``, k ``[n, H or 1, D]`` and w ``[B, H]``; and the shape of the scores."""
    query, keys = op.floats(q, "q"), op.floats(k, "k")
    batch = "B " if len(query.shape) == 3 else ""
    op.sizes.check("q", f"{batch}H D", query.shape)
    of_heads = len(keys.shape) == 3
    op.sizes.check("k", "n H D" if of_heads else "n D", keys.shape)
    weights = op.floats(w, "w", f"{batch}H")
    operands = query.with_axes(3), keys if of_heads else keys.add_axis(1), weights.with_axes(2)
    return operands, op.sizes.shape(f"{batch}n")


def _lengths(op: Operation, lengths: Any, batch: tuple[int, ...], n: int) -> View | None:
    """Of ``(B,)`` rows of n; None where all of them count."""
    if lengths is None:
        return None
    if not batch:
        raise ValueError("lengths: expected None without a batch")
    counts = _of_rows(op, lengths, "lengths", batch)
    check_within(counts, "lengths", 0, n)
    return counts


def _of_rows(op: Operation, numbers: Any, name: str, batch: tuple[int, ...]) -> View:
    """An integer for each of ``(B,)`` rows."""
    if not batch:
        raise ValueError(f"{name}: expected a number for one list, got an array")
    op.sizes.setdefault("B", batch[0])
    return op.integers(numbers, name, "B")


def contiguous(view: View, name: str) -> View:
    """A ValueError where elements do not lie one after the other."""
    operand = view.source.operand
    if operand is not None:
        operand.check_contiguous(name)
    return view
