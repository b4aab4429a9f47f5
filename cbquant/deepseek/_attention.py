"""Attention of one token: over a whole cache, or over the positions of a list."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant import _core
from cbquant._arguments import check_threads
from cbquant.deepseek._indexer import index_output
from cbquant.deepseek._inputs import MAX_POSITIONS, Sizes, bits, floats, number, output, positions, rows, whole

if TYPE_CHECKING:
    from numpy.typing import NDArray


def sdpa_decode_sink(
    q: Any,
    k: Any,
    v: Any,
    sink: Any,
    scale: float | None = None,
    lengths: Any = None,
    *,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Attention of one token over its cache, with a sink in each head's softmax.

    ``out[h] = sum_i exp(s[h, i]) v[g, i] / (exp(sink[h]) + sum_i exp(s[h, i]))`` with the logits
    ``s[h, i] = scale * q[h] . k[g, i]``, where head h belongs to group ``g = h // (H / Hkv)``. The sink is a logit
    without a value.

    Parameters
    ----------
    q : array
        ``[H, D]``, or ``[B, H, D]`` for a batch of sequences; float32, float16 or bfloat16.
    k, v : array
        ``[Hkv, n, D]`` and ``[Hkv, n, Dv]``, or ``[B, Hkv, n, D]`` and ``[B, Hkv, n, Dv]``; H is a multiple of Hkv.
        Where `v` is `k`, or the same memory, the cache is read once. Multiples of 64 for D and Dv are fast.
    sink : array or None
        ``[H]``: the logit of each head's sink; None is none.
    scale : float, optional
        1 / sqrt(D) by default.
    lengths : array of int, optional
        ``[B]``, with a batch: only so many positions of each sequence count. What lies after them is not read.
    out : ndarray, optional
        Where to write: ``[H, Dv]`` or ``[B, H, Dv]``, its last axis contiguous, apart from the inputs; float32,
        float16, bfloat16, or uint16 for the bits of bfloat16.
    threads : int, optional
        As for `cbquant.dequant`. The result does not depend on it, nor on what else is in the batch.

    Returns
    -------
    ndarray
        `out`, or a new array of q's dtype. Heads whose logits all are -infinity are zeros; a single such logit leaves
        its value out, whatever that is. A sink of +infinity takes all: zeros, too.

    Raises
    ------
    ValueError
        Shapes that do not fit, a length that cannot be, an `out` that does not fit or overlaps.
    TypeError
        A wrong type of array, dtype or number.

    Notes
    -----
    Item 4 of DeepSeek-V4's operators. Logits, softmax and sums are float32. The cache is cut into pieces by its length
    alone, whose partial results are joined once, in their order.

    Examples
    --------
    Two positions with equal logits and a sink that counts for as much as both of them.

    >>> import cbquant, numpy as np
    >>> q, k = np.zeros((1, 4), np.float32), np.zeros((1, 2, 4), np.float32)
    >>> v = np.float32([[[4, 0, 8, 0], [0, 4, 8, 0]]])
    >>> cbquant.deepseek.sdpa_decode_sink(q, k, v, sink=np.log(np.float32([2])))
    array([[1., 1., 4., 0.]], dtype=float32)
    """
    arrays, sizes = _qkv(q, k, v)
    counts = None
    if lengths is not None:
        if np.ndim(q) != 3:
            raise ValueError("lengths: expected None without a batch: slice k and v instead")
        counts = positions(lengths, "lengths")
        sizes.check("lengths", "B", counts.shape)
    return _attend(arrays, sizes, sink, scale, out, threads, lengths=counts)


def sparse_sdpa_decode(
    q: Any,
    k: Any,
    v: Any,
    indices: Any,
    sink: Any = None,
    scale: float | None = None,
    *,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Attention of one token over the positions of a list: `sdpa_decode_sink` of the cache's rows that it names.

    Parameters
    ----------
    q, k, v, sink, scale, out, threads
        As for `sdpa_decode_sink`; by default there is no sink.
    indices : array of int
        ``[n_sel]``, or ``[B, n_sel]`` for a batch (where one list may serve all of it): positions in the cache, in any
        order; -1 is padding. A position that is named twice counts twice.

    Returns
    -------
    ndarray
        `out`, or a new array of q's dtype: zeros where nothing is selected.

    Raises
    ------
    ValueError
        As for `sdpa_decode_sink`, and an index outside of the cache: before anything is read.
    TypeError
        A wrong type of array, dtype or number; indices that are not integers.

    Notes
    -----
    Item 10 of DeepSeek-V4's operators (compressed sparse attention). `gather_list` makes a list of an indexer's choice.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> q, cache = np.zeros((1, 4), np.float32), np.arange(32, dtype=np.float32).reshape(1, 8, 4)
    >>> cbquant.deepseek.sparse_sdpa_decode(q, cache, cache, [1, 3, -1])
    array([[ 8.,  9., 10., 11.]], dtype=float32)
    """
    arrays, sizes = _qkv(q, k, v)
    chosen = positions(indices, "indices")
    if chosen.ndim == 1:
        chosen = chosen[None]
    elif np.ndim(q) == 3:
        sizes.check("indices", "B n_sel", chosen.shape)
    else:
        raise ValueError(f"indices: expected [n_sel] without a batch, got shape {chosen.shape}")
    return _attend(arrays, sizes, sink, scale, out, threads, indices=chosen)


def gather_list(
    topk: Any, n_kv: Any, window: Any = 128, *, out: NDArray[np.int32] | None = None, threads: int | None = None
) -> NDArray[np.int32]:
    """The positions that an indexer chose and the last ones of the cache: each once, rising.

    Parameters
    ----------
    topk : array of int
        ``[k]`` or ``[B, k]``: positions in any order; -1 is none.
    n_kv : int, or array of int
        Positions in the cache, or, with a topk ``[B, k]``, ``[B]``: those that there are for each list, as where tokens
        of a prompt see no later ones.
    window : int, or array of int
        How many of the last positions are in every list, or ``[B]``: in each.
    out : ndarray, optional
        Where to write: int32 ``[m]`` or ``[B, m]``, C-contiguous, apart from the inputs, with room for the longest
        list; what is left is filled with -1.
    threads : int, optional
        Checked, and not used: one thread is fast enough.

    Returns
    -------
    ndarray
        int32 ``[n_sel]``, or ``[B, n_sel]`` as long as the longest list, shorter ones with -1 at their end; or `out`.

    Raises
    ------
    ValueError
        A position that is not in the cache, a number that cannot be, an `out` that does not fit or overlaps.
    TypeError
        A wrong type of array, dtype or number.

    Notes
    -----
    Item 10 of DeepSeek-V4's operators.

    Examples
    --------
    >>> import cbquant
    >>> cbquant.deepseek.gather_list([7, 2, 5, 2], n_kv=8, window=2)
    array([2, 5, 6, 7], dtype=int32)
    >>> cbquant.deepseek.gather_list([[0, -1], [2, 0]], n_kv=[3, 7], window=2)
    array([[ 0,  1,  2, -1],
           [ 0,  2,  5,  6]], dtype=int32)
    """
    chosen = positions(topk, "topk")
    if chosen.ndim not in (1, 2):
        raise ValueError(f"topk: expected [k] or [B, k], got shape {chosen.shape}")
    n, last = of_lists(n_kv, "n_kv", chosen.shape[:-1]), of_lists(window, "window", chosen.shape[:-1])
    check_threads(threads)
    lines = chosen if chosen.ndim == 2 else chosen[None]
    if out is None:
        room = most(n, last, chosen.shape[-1])
        result = np.empty((len(lines), room), np.int32)
    else:
        room = out.shape[-1] if isinstance(out, np.ndarray) and out.ndim else 0
        inputs = {"topk": np.asarray(topk), "n_kv": np.asarray(n_kv), "window": np.asarray(window)}
        index_output(out, (*chosen.shape[:-1], room), inputs)
        result = out.reshape(len(lines), room)
    counts, sizes = np.empty(len(lines), np.int64), np.empty((2, len(lines)), np.int64)
    sizes[0], sizes[1] = n, last
    _core.gather_list(lines, sizes[0], sizes[1], result, counts)
    longest = int(counts.max(initial=0))
    if out is not None:
        if longest > room:
            raise ValueError(f"out: expected room for {longest} positions, got shape {out.shape}")
        return out
    return np.ascontiguousarray(result[:, :longest]).reshape(*chosen.shape[:-1], longest)


def of_lists(numbers: Any, name: str, batch: tuple[int, ...]) -> int | NDArray[np.int64]:
    """One for all lists, or an array of as many as there are."""
    if isinstance(numbers, int) or np.ndim(numbers) == 0:
        return whole(numbers, name, 0, MAX_POSITIONS)
    if not batch:
        raise ValueError(f"{name}: expected a number for one list, got shape {np.shape(numbers)}")
    each = positions(numbers, name)
    if each.shape != batch:
        raise ValueError(f"{name}: expected a number, or [B] with B = {batch[0]}, got shape {each.shape}")
    bad = each[(each < 0) | (each > MAX_POSITIONS)]
    if bad.size:
        raise ValueError(f"{name}: expected 0 to {MAX_POSITIONS}, got {bad[0]}")
    return each


def most(n: int | NDArray[np.int64], window: int | NDArray[np.int64], chosen: int) -> int:
    """The positions that the longest list can have."""
    if isinstance(n, int) and isinstance(window, int):
        return min(n, window + chosen)
    return int(np.minimum(n, window + chosen).max(initial=0))


def sink_of(sink: Any, sizes: Sizes) -> NDArray[np.float32] | None:
    """The sinks as C takes them."""
    if sink is None:
        return None
    return np.require(floats(sink, "sink", "H", sizes), np.float32, ["C_CONTIGUOUS", "ALIGNED"])


def scale_of(scale: float | None, width: int) -> float:
    return 1 / math.sqrt(max(width, 1)) if scale is None else number(scale, "scale")


def _qkv(q: Any, k: Any, v: Any) -> tuple[dict[str, NDArray[Any]], Sizes]:
    sizes, batch = Sizes(), "B " if np.ndim(q) == 3 else ""
    arrays = {"q": floats(q, "q", f"{batch}H D", sizes), "k": floats(k, "k", f"{batch}Hkv n D", sizes)}
    arrays["v"] = arrays["k"] if v is k else floats(v, "v", f"{batch}Hkv n Dv", sizes)
    heads, groups = sizes["H"], sizes["Hkv"]
    if groups == 0 or heads % groups:
        raise ValueError(f"q: expected a multiple of {groups} heads (those of k), got {heads}")
    sizes.setdefault("Dv", sizes["D"])
    return arrays, sizes


def _attend(
    arrays: dict[str, NDArray[Any]],
    sizes: Sizes,
    sink: Any,
    scale: float | None,
    out: NDArray[Any] | None,
    threads: int | None,
    lengths: NDArray[np.int64] | None = None,
    indices: NDArray[np.int64] | None = None,
) -> NDArray[Any]:
    sinks, factor = sink_of(sink, sizes), scale_of(scale, sizes["D"])
    others = {"sink": sinks, "lengths": lengths, "indices": indices}
    inputs = arrays | {name: array for name, array in others.items() if array is not None}
    query = arrays["q"]
    result = output(out, (*query.shape[:-1], sizes["Dv"]), query.dtype.name, inputs)
    dense = {name: bits(rows(array)) for name, array in arrays.items() if name != "v" or array is not arrays["k"]}
    operands = (dense["q"], dense["k"], dense.get("v", dense["k"]), bits(result))
    first, keys, values, target = operands if query.ndim == 3 else (array[None] for array in operands)
    _core.sdpa(first, keys, values, target, factor, sinks, lengths, indices, check_threads(threads))
    return result
