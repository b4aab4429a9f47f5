"""E2M1, the 4-bit floats of OCP MX and NVFP4: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.

>>> import cbquant, numpy as np
>>> codes = cbquant.e2m1.encode(np.array([0.7, -2.4, 100.0], np.float32))
>>> codes
array([ 1, 12,  7], dtype=uint8)
>>> cbquant.e2m1.decode(codes)
array([ 0.5, -2. ,  6. ], dtype=float32)
>>> cbquant.e2m1.unpack(np.array([0x21], np.uint8))  # lowest nibble first
array([0.5, 1. ], dtype=float32)
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
        Only the low 4 bits count.
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
    >>> cbquant.e2m1.decode(np.array([[3, 8], [9, 15]], np.uint8))
    array([[ 1.5, -0. ],
           [-0.5, -6. ]], dtype=float32)
    """
    return _codecs.decode("e2m1", codes, dtype, out, threads)


def encode(x: Any, out: NDArray[np.uint8] | None = None, threads: int | None = None) -> NDArray[np.uint8]:
    """Encode numbers, one code to a byte: to the nearest value, ties to the even code.

    Beyond 6, infinity too, is 6. There is no NaN: it becomes a zero of its sign. -0.0 is 8.

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
        Codes from 0 to 15, in the shape of `x`; `out`, or a new array.

    Raises
    ------
    TypeError, ValueError
        `x` of another type or byte order, or an `out` that does not fit. Nothing is written.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> cbquant.e2m1.encode(np.array([2.5, 2.51, -0.0, np.inf, -np.nan]))
    array([4, 5, 8, 7, 8], dtype=uint8)
    """
    return _codecs.encode("e2m1", x, out, threads)


def unpack(
    packed: Any, dtype: Any = "float32", out: NDArray[Any] | None = None, threads: int | None = None
) -> NDArray[Any]:
    """Decode bytes of two codes each, the first in the low nibble.

    Parameters
    ----------
    packed : array of uint8
        ``[..., n]``, any strides; bytes and other buffers too.
    dtype, out, threads
        As for `decode`.

    Returns
    -------
    ndarray
        ``[..., 2 * n]``; `out`, or a new array.

    Raises
    ------
    TypeError, ValueError
        As `decode`; an array without dimensions.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> cbquant.e2m1.unpack(np.array([[0x21], [0x7F]], np.uint8))
    array([[ 0.5,  1. ],
           [-6. ,  6. ]], dtype=float32)
    """
    return _codecs.decode("e2m1", packed, dtype, out, threads, packed=True)


def pack(x: Any, out: NDArray[np.uint8] | None = None, threads: int | None = None) -> NDArray[np.uint8]:
    """Encode numbers as `encode` does, two codes to a byte, the first in the low nibble.

    Parameters
    ----------
    x : array
        ``[..., 2 * n]``, as for `encode`.
    out : ndarray of uint8, optional
        As for `encode`, of the result's shape.
    threads : int, optional
        As for `cbquant.dequant`.

    Returns
    -------
    ndarray of uint8
        ``[..., n]``; `out`, or a new array.

    Raises
    ------
    TypeError, ValueError
        As `encode`; a last dimension that is odd.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> [hex(byte) for byte in cbquant.e2m1.pack(np.array([0.5, 1.0, -6.0, 6.0]))]
    ['0x21', '0x7f']
    """
    return _codecs.encode("e2m1", x, out, threads, packed=True)
