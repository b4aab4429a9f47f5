"""E2M3, 6-bit floats of OCP MX: multiples of 1/8 up to 2, then four significant bits, to 7.5.

>>> import cbquant, numpy as np
>>> codes = cbquant.e2m3.encode(np.array([0.7, -2.4, 100.0], np.float32))
>>> codes
array([ 6, 50, 31], dtype=uint8)
>>> cbquant.e2m3.decode(codes)
array([ 0.75, -2.5 ,  7.5 ], dtype=float32)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cbquant import _codecs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["decode", "encode", "pack", "unpack"]


def decode(
    codes: Any, dtype: Any = "float32", out: NDArray[Any] | None = None, threads: int | None = None
) -> NDArray[Any]:
    """Decode codes, one to a byte.

    Parameters
    ----------
    codes : array of uint8
        Any shape and strides; bytes and other buffers, and arrays of ml_dtypes' type of such codes.
        Only the low 6 bits count.
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
    >>> cbquant.e2m3.decode(np.array([[1, 31], [32, 60]], np.uint8))
    array([[ 0.125,  7.5  ],
           [-0.   , -6.   ]], dtype=float32)
    """
    return _codecs.decode("e2m3", codes, dtype, out, threads)


def encode(x: Any, out: NDArray[np.uint8] | None = None, threads: int | None = None) -> NDArray[np.uint8]:
    """Encode numbers, one code to a byte: to the nearest value, ties to the even code.

    Beyond 7.5, infinity too, is 7.5. There is no NaN: it becomes a zero of its sign. -0.0 is 32.

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
        Codes from 0 to 63, in the shape of `x`; `out`, or a new array.

    Raises
    ------
    TypeError, ValueError
        `x` of another type or byte order, or an `out` that does not fit. Nothing is written.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> cbquant.e2m3.encode(np.array([4.25, 4.26, -0.0, np.inf, -np.nan]))
    array([24, 25, 32, 31, 32], dtype=uint8)
    """
    return _codecs.encode("e2m3", x, out, threads)


def unpack(
    packed: Any, dtype: Any = "float32", out: NDArray[Any] | None = None, threads: int | None = None
) -> NDArray[Any]:
    """Decode codes that stand one after the other, four in three bytes, the first in the lowest bits.

    Parameters
    ----------
    packed : array of uint8
        ``[..., 3 * n]``, any strides; bytes and other buffers too.
    dtype, out, threads
        As for `decode`.

    Returns
    -------
    ndarray
        ``[..., 4 * n]``; `out`, or a new array.

    Raises
    ------
    TypeError, ValueError
        As `decode`; a last dimension that is no multiple of 3.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> cbquant.e2m3.unpack(np.array([0x08, 0x02, 0x61], np.uint8))
    array([1., 1., 2., 4.], dtype=float32)
    """
    return _codecs.decode("e2m3", packed, dtype, out, threads, packed=True)


def pack(x: Any, out: NDArray[np.uint8] | None = None, threads: int | None = None) -> NDArray[np.uint8]:
    """Encode numbers as `encode` does, four codes to three bytes, the first in the lowest bits.

    Parameters
    ----------
    x : array
        ``[..., 4 * n]``, as for `encode`.
    out : ndarray of uint8, optional
        As for `encode`, of the result's shape.
    threads : int, optional
        As for `cbquant.dequant`.

    Returns
    -------
    ndarray of uint8
        ``[..., 3 * n]``; `out`, or a new array.

    Raises
    ------
    TypeError, ValueError
        As `encode`; a last dimension that is no multiple of 4.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> cbquant.e2m3.pack(np.array([1.0, 2.0, 4.0, 7.5])).tolist()
    [8, 132, 125]
    """
    return _codecs.encode("e2m3", x, out, threads, packed=True)
