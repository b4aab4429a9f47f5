"""compressor_pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cbquant import _core
from cbquant._arguments import check_threads, check_word
from cbquant.deepseek._inputs import Sizes, bits, dtype_of, floats, output, rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


def compressor_pool(
    gate: Any,
    kv: Any,
    ape: Any,
    ape_on: str = "value",
    *,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Pool windows of entries of a cache: their sum, weighted by the softmax of their gates.

    For each column ``out[w] = sum over p of softmax(gate[w])[p] * (kv[w, p] + ape[p])``; with ``ape_on="gate"`` the ape
    is added to the gate instead, before the softmax. DeepSeek-V4 compresses its cache so, with 8 entries in overlapping
    windows (a strided view will do) and with 128.

    Parameters
    ----------
    gate : array
        ``[W, P, D]``, or ``[W, P, 1]`` for a gate that all columns share: float32, float16 or bfloat16. -inf leaves an
        entry out, whatever its kv holds.
    kv : array
        ``[W, P, D]``.
    ape : array
        ``[P, D]``: what is added to each entry by its place in the window.
    ape_on : "value" or "gate"
        What the ape is added to.
    out : ndarray, optional
        Where to write: ``[W, D]``, apart from the inputs, its last axis contiguous; float32, float16, bfloat16, or
        uint16 for the bits of bfloat16.
    threads : int, optional
        As for `cbquant.dequant`.

    Returns
    -------
    ndarray
        ``[W, D]``: `out`, or a new array of kv's dtype. 0 where every gate is -inf.

    Raises
    ------
    ValueError
        Shapes that do not fit, an unknown `ape_on`, an `out` that does not fit or overlaps.
    TypeError
        A wrong type of array, dtype or number.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> gate = np.float32([[[0], [0], [-np.inf]]])
    >>> kv = np.float32([[[1, 2], [3, 4], [9, 9]]])
    >>> cbquant.deepseek.compressor_pool(gate, kv, np.zeros((3, 2), np.float32))
    array([[2., 3.]], dtype=float32)
    """
    sizes = Sizes()
    values = floats(kv, "kv", "W P D", sizes)
    gates = floats(gate, "gate")
    if gates.shape not in (values.shape, (*values.shape[:2], 1)):
        raise ValueError(f"gate: expected {values.shape}, as kv, or 1 for its last axis, got shape {gates.shape}")
    places = floats(ape, "ape", "P D", sizes)
    on_gate = check_word("ape_on", ape_on, ("value", "gate")) == "gate"
    result = output(out, sizes.shape("W D"), dtype_of(values), {"gate": gates, "kv": values, "ape": places})
    arrays = (bits(rows(gates)), bits(rows(values)), bits(rows(places)), bits(result))
    _core.compressor_pool(*arrays, on_gate, check_threads(threads))
    return result
