"""vector_add."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cbquant import _core
from cbquant._arguments import check_threads
from cbquant.deepseek._inputs import bits, dtype_of, floats, output, rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

# For new memory: see _api.py.
THROUGH_CACHE = 0


def vector_add(a: Any, b: Any, *, out: NDArray[Any] | None = None, threads: int | None = None) -> NDArray[Any]:
    """Add two arrays of one shape: in float32, rounded once.

    Parameters
    ----------
    a, b : array
        float32, float16 or bfloat16, of one shape. Where a last axis is not contiguous that array is copied.
    out : ndarray, optional
        Where to write: of the same shape, apart from `a` and `b`, its last axis contiguous; float32, float16,
        bfloat16, or uint16 for the bits of bfloat16.
    threads : int, optional
        As for `cbquant.dequant`.

    Returns
    -------
    ndarray
        `out`, or a new array of a's dtype.

    Raises
    ------
    ValueError
        Shapes that differ, an `out` that does not fit or overlaps.
    TypeError
        A wrong type of array, dtype or number.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> a, b = np.float16([2048, 1]), np.float16([0.75, 0.5])
    >>> cbquant.deepseek.vector_add(a, b)
    array([2.048e+03, 1.500e+00], dtype=float16)
    """
    first = floats(a, "a")
    second = floats(b, "b")
    if second.shape != first.shape:
        raise ValueError(f"b: expected the shape of a, {first.shape}, got {second.shape}")
    result = output(out, first.shape, dtype_of(first), {"a": first, "b": second})
    stream = THROUGH_CACHE if out is None else -1
    _core.vector_add(bits(rows(first)), bits(rows(second)), bits(result), check_threads(threads), None, stream)
    return result
