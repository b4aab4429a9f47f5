"""The row order of rotary attention weights in GGUF files."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cbquant._arguments import as_numbers, check_whole
from cbquant._unknown import is_unknown
from cbquant.tensor import QuantTensor

T = TypeVar("T", NDArray[Any], QuantTensor)


def unpermute_rope(w: T, n_head: int) -> T:
    """Undo the row order that llama.cpp's converters give attn_q and attn_k of Llama models.

    RoPE turns pairs of rows. Hugging Face's checkpoints keep the first members of a head's pairs before the
    second ones; the converter (``permute`` in convert_hf_to_gguf.py) puts the two of a pair side by side: row
    ``2i + j`` of a head in a GGUF file is row ``i + j * rows_per_head / 2`` of the checkpoint. This is the
    inverse.

    Parameters
    ----------
    w : QuantTensor or ndarray
        [rows, ...]. The rows of a QuantTensor, which has two or more dimensions, move as bytes and are not
        decoded; an ndarray of one dimension is a bias.
    n_head : int
        Heads that the rows hold: for attn_k the number of key-value heads.

    Returns
    -------
    QuantTensor or ndarray
        New memory; kind, shape and format or dtype of `w`.

    Raises
    ------
    ValueError
        A `w` without rows to move, an `n_head` below 1, rows that are not a multiple of ``2 * n_head``.
    TypeError
        An `n_head` that is not an integer.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> cbquant.unpermute_rope(np.array([0, 4, 1, 5, 2, 6, 3, 7]), n_head=1).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    heads = check_whole("n_head", n_head)
    if isinstance(w, QuantTensor):
        if is_unknown(w.format) or w.ndim < 2:
            raise ValueError(f"w: expected two or more dimensions of a known format, got {w!r}")
        return w._choose((_unpermute(np.arange(len(w)), heads),))
    w = as_numbers(w, "w")
    if w.ndim < 1:
        raise ValueError("w: expected one or more dimensions, got 0")
    return _unpermute(w, heads)


def _unpermute(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    if len(rows) % (2 * heads):
        raise ValueError(f"w: {len(rows)} rows are not a multiple of 2 * n_head = {2 * heads}")
    pairs = rows.reshape(heads, len(rows) // heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
