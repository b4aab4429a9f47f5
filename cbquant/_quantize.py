"""Encoding: arguments are checked and shaped here, the work is done in C."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant import _core
from cbquant._arguments import as_floats, as_numbers, check_bytes_out, check_native, check_threads, check_word
from cbquant._formats import Format, get

if TYPE_CHECKING:
    from numpy.typing import NDArray

METHODS = ("reference", "mse")
NONFINITE = ("raise", "allow")


def quantize(
    x: Any,
    fmt: str,
    imatrix: Any = None,
    *,
    method: str = "reference",
    nonfinite: str = "raise",
    out: NDArray[np.uint8] | None = None,
    threads: int | None = None,
) -> NDArray[np.uint8]:
    """Encode rows of numbers to block-quantized weights.

    Parameters
    ----------
    x : array
        ``[..., K]`` in float32, float64 (rounded to float32, once), float16 or bfloat16; any strides. K is a multiple
        of the format's block.
    fmt : str
        Name of a block format: see `cbquant.formats`.
    imatrix : array or "ones", optional
        Importance of each column, float32 ``[K]``, from 0 up: the mean square of what the column is multiplied with.
        iq2_xxs, iq2_xs and iq1_s need one; "ones" makes all columns equal.
    method : "reference" or "mse"
        "reference" gives the bytes of ggml's ``ggml_quantize_chunk``. "mse" begins there and looks for scales and
        codes with a smaller squared error (weighted by `imatrix` where there is one); no block gets worse.
    nonfinite : "raise" or "allow"
        What to do about NaN and infinity in `x`, also of float64 beyond the range of float32. Blocks with such numbers
        have no meaning: "allow" writes some bytes for them, and the right ones for all
        other rows.
    out : ndarray, optional
        Where to write: uint8, C-contiguous, writable, of the result's shape, apart from `x`.
    threads : int, optional
        As for `cbquant.dequant`. The bytes do not depend on it.

    Returns
    -------
    ndarray of uint8
        ``[..., row bytes]``; `out`, or a new array.

    Raises
    ------
    ValueError
        Unknown format, a K that is no whole number of blocks, NaN or infinity in `x` (with its row and column), an
        `imatrix` that is missing, negative, NaN or of another length, an `out` that does not fit. Nothing is written.
    TypeError
        A wrong type of array or number.

    Warns
    -----
    UserWarning
        `imatrix` is zero over a whole block: the reference then knows nothing about its weights.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
    >>> blocks = cbquant.quantize(x, "q8_0")
    >>> blocks.shape, blocks.dtype
    ((2, 34), dtype('uint8'))
    >>> bool(np.abs(cbquant.dequant(blocks, "q8_0") - x).max() < 0.005)
    True
    """
    f = get(fmt)
    check_word("method", method, METHODS)
    check_word("nonfinite", nonfinite, NONFINITE)
    if f.kind == "plain":
        raise ValueError(f"fmt: {f.name} is a plain type, not a block format; convert with NumPy's astype")
    array, source = _as_rows(x, f)
    weights = _weights(imatrix, f, array.shape[-1])
    result = check_bytes_out(out, (*array.shape[:-1], array.shape[-1] // f.elements * f.bytes))
    if out is not None and (
        np.may_share_memory(array, out) or (weights is not None and np.may_share_memory(weights, out))
    ):
        raise ValueError("out: expected memory of its own, it overlaps x or imatrix")
    k = array.shape[-1]
    rows = array.size // k if k else 0
    allow, improve = nonfinite == "allow", method == "mse"
    _core.quantize(
        array, source, f.name, result, rows, k, weights, allow, check_threads(threads), None, improve, out is None
    )
    return result


def _as_rows(x: Any, f: Format) -> tuple[NDArray[Any], str]:
    """x as C takes it, and the name of its type there."""
    array, source = as_floats(x, "x")
    if array.ndim == 0:
        raise ValueError("x: expected at least one dimension, got ()")
    if array.shape[-1] % f.elements:
        raise ValueError(f"x: k={array.shape[-1]} is not a multiple of {f.elements} ({f.name})")
    return array, source


def _weights(imatrix: Any, f: Format, k: int) -> NDArray[np.float32] | None:
    if imatrix is None:
        if f.needs_imatrix:
            hint = 'pass the mean squares of the columns\' inputs (float32 [K]), or imatrix="ones"'
            raise ValueError(f"imatrix: {f.name} needs an importance matrix; {hint}")
        return None
    if isinstance(imatrix, str):
        check_word("imatrix", imatrix, ("ones",))
        return np.ones(k, np.float32)
    given = as_numbers(imatrix, "imatrix")
    if given.dtype.kind not in "fiu" and given.dtype.name != "bfloat16":
        raise TypeError(f"imatrix: expected float32, got {given.dtype.name}")
    check_native(given.dtype, "imatrix")
    if given.shape != (k,):
        raise ValueError(f"imatrix: expected shape ({k},), got {given.shape}")
    with np.errstate(over="ignore"):
        weights = np.require(given, np.float32, ["C_CONTIGUOUS", "ALIGNED"])
    wrong = np.flatnonzero(~((weights >= 0) & np.isfinite(weights)))
    if wrong.size:
        raise ValueError(f"imatrix: expected finite numbers from 0 up, got {weights[wrong[0]]} at column {wrong[0]}")
    empty = np.flatnonzero(~weights.reshape(-1, f.elements).any(axis=1))
    if empty.size:
        message = (
            f"imatrix: all weights are zero over block {empty[0]} of each row ({f.name}), which says nothing about it"
        )
        warnings.warn(message, stacklevel=3)
    return weights
