"""FP8: the four 8-bit floats in use.

========  =====================  ========  =========================================
kind      exponent, mantissa     largest   infinity and NaN
========  =====================  ========  =========================================
e4m3fn    4 bits, 3 bits         448       no infinity; 0x7F and 0xFF are NaN
e4m3fnuz  4, 3 (bias 8, not 7)   240       no infinity, no -0; 0x80 is NaN
e5m2      5, 2                   57344     as IEEE 754: infinity is 0x7C and 0xFC
e5m2fnuz  5, 2 (bias 16)         57344     no infinity, no -0; 0x80 is NaN
========  =====================  ========  =========================================

The names are those of ``ml_dtypes`` (``float8_e4m3fn`` ..) and of PyTorch. `KINDS` lists them.

>>> import cbquant, numpy as np
>>> codes = cbquant.fp8.encode(np.array([1.0, -0.3, 1000.0], np.float32), "e4m3fn")
>>> codes
array([ 56, 170, 126], dtype=uint8)
>>> cbquant.fp8.decode(codes, "e4m3fn")
array([ 1.000e+00, -3.125e-01,  4.480e+02], dtype=float32)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cbquant import _codecs
from cbquant._arguments import check_word

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["KINDS", "decode", "encode"]

KINDS = _codecs.FP8_KINDS


def _kind(kind: str) -> str:
    """One of KINDS; upper case and ml_dtypes' names of them (float8_e4m3fn) are accepted."""
    plain = kind.lower().removeprefix("float8_") if isinstance(kind, str) else kind
    if plain == "e4m3":
        raise ValueError(
            f"kind: expected one of {', '.join(KINDS)}, got {kind!r}; checkpoints call e4m3fn by that name"
        )
    return plain if plain in KINDS else check_word("kind", kind, KINDS)


def decode(
    codes: Any, kind: str, dtype: Any = "float32", out: NDArray[Any] | None = None, threads: int | None = None
) -> NDArray[Any]:
    """Decode FP8.

    Parameters
    ----------
    codes : array of uint8
        Any shape and strides; bytes and other buffers, and arrays of the type of ml_dtypes that has this kind.
    kind : "e4m3fn", "e4m3fnuz", "e5m2" or "e5m2fnuz"
        There is no default: the same bytes are other numbers in another kind.
    dtype : "float32", "float16" or "bfloat16"
        Of the result, which is exact in all of them. bfloat16 needs ml_dtypes, or an `out` of bfloat16 or uint16.
    out : ndarray, optional
        Where to write: C-contiguous, writable, of the shape of `codes`, apart from it.
    threads : int, optional
        As for `cbquant.dequant`.

    Returns
    -------
    ndarray
        The shape of `codes`; `out`, or a new array.

    Raises
    ------
    TypeError, ValueError
        No bytes, an unknown kind, or an `out` that does not fit. Nothing is written.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> cbquant.fp8.decode(np.array([0x01, 0x7E, 0x7F, 0x80], np.uint8), "e4m3fn")
    array([ 1.953125e-03,  4.480000e+02,           nan, -0.000000e+00],
          dtype=float32)
    """
    return _codecs.decode(_kind(kind), codes, dtype, out, threads)


def encode(
    x: Any, kind: str, saturate: bool = True, out: NDArray[np.uint8] | None = None, threads: int | None = None
) -> NDArray[np.uint8]:
    """Encode numbers as FP8: to the nearest value, ties to the even code.

    Parameters
    ----------
    x : array
        float32, float64, float16 or bfloat16, of any shape and strides. float64 is rounded once.
    kind : "e4m3fn", "e4m3fnuz", "e5m2" or "e5m2fnuz"
        There is no default.
    saturate : bool
        True: infinity and what rounds beyond the largest value become that. False: infinity in e5m2, NaN in the
        others, as ``ml_dtypes`` has it.
    out : ndarray of uint8, optional
        Where to write: C-contiguous, writable, of the shape of `x`, apart from it.
    threads : int, optional
        As for `cbquant.dequant`.

    Returns
    -------
    ndarray of uint8
        The shape of `x`; `out`, or a new array. NaN becomes NaN, of its sign where there are two.

    Raises
    ------
    TypeError, ValueError
        `x` of another type or byte order, an unknown kind, or an `out` that does not fit. Nothing is written.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> x = np.array([464.0, 465.0, np.inf, -np.nan])
    >>> [hex(code) for code in cbquant.fp8.encode(x, "e4m3fn")]
    ['0x7e', '0x7e', '0x7e', '0xff']
    >>> [hex(code) for code in cbquant.fp8.encode(x, "e4m3fn", saturate=False)]
    ['0x7e', '0x7f', '0x7f', '0xff']
    """
    if not isinstance(saturate, bool):
        raise TypeError(f"saturate: expected True or False, got {type(saturate).__name__}")
    return _codecs.encode(_kind(kind), x, out, threads, saturate=saturate)
