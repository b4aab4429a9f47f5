"""MXINT8, the 8-bit integers of OCP MX: a signed byte / 64, so that values are below 2.

>>> import cbquant, numpy as np
>>> codes = cbquant.mxint8.encode(np.array([0.5, -1.0, 3.0], np.float32))
>>> codes
array([ 32, 192, 127], dtype=uint8)
>>> cbquant.mxint8.decode(codes)
array([ 0.5     , -1.      ,  1.984375], dtype=float32)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cbquant import _codecs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["decode", "encode"]


def decode(
    codes: Any, dtype: Any = "float32", out: NDArray[Any] | None = None, threads: int | None = None
) -> NDArray[Any]:
    """Decode signed bytes: code / 64.

    Parameters
    ----------
    codes : array of uint8 or int8
        Any shape and strides; bytes and other buffers too. 128 (-128) is -2.
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
        No bytes, or an `out` that does not fit. Nothing is written.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> cbquant.mxint8.decode(np.array([1, 64, 128, 255], np.uint8))
    array([ 0.015625,  1.      , -2.      , -0.015625], dtype=float32)
    """
    return _codecs.decode("mxint8", codes, dtype, out, threads)


def encode(x: Any, out: NDArray[np.uint8] | None = None, threads: int | None = None) -> NDArray[np.uint8]:
    """Encode numbers: 64 x to the nearest integer, ties to even, from -127 to 127.

    -128 is not used, which OCP MX 1.0 leaves open: the range stays symmetric. NaN is 0.

    Parameters
    ----------
    x : array
        float32, float64, float16 or bfloat16, of any shape and strides. float64 is rounded once.
    out : ndarray of uint8, optional
        Where to write: C-contiguous, writable, of the shape of `x`, apart from it.
    threads : int, optional
        As for `cbquant.dequant`.

    Returns
    -------
    ndarray of uint8
        Two's complement, in the shape of `x`: ``.view(np.int8)`` shows the signs. `out`, or a new array.

    Raises
    ------
    TypeError, ValueError
        `x` of another type or byte order, or an `out` that does not fit. Nothing is written.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> cbquant.mxint8.encode(np.array([1.0, 0.0078125, -2.0, np.nan])).view(np.int8)
    array([  64,    0, -127,    0], dtype=int8)
    """
    return _codecs.encode("mxint8", x, out, threads)
