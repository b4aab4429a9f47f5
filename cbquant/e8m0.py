"""E8M0, the scales of OCP MX: powers of two from 2^-127 (0) to 2^127 (254), and NaN (255).

>>> import cbquant, numpy as np
>>> cbquant.e8m0.decode(np.array([126, 127, 130, 255], np.uint8))
array([0.5, 1. , 8. , nan], dtype=float32)
>>> blocks = np.array([[0.1, -7.5], [0.0, 0.0]], np.float32)
>>> cbquant.e8m0.encode(np.abs(blocks).max(axis=-1))  # for elements of e2m1, whose largest value is 6
array([127,   0], dtype=uint8)
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
    """Decode scales: 2^(code - 127), NaN for 255.

    Parameters
    ----------
    codes : array of uint8
        Any shape and strides; bytes and other buffers, and arrays of ml_dtypes' type of such codes.
    dtype : "float32", "float16" or "bfloat16"
        Of the result, which is exact in the first and the last (0 is the subnormal 2^-127). In float16 it is rounded:
        infinity from 2^16 up, zero from 2^-25 down. bfloat16 needs ml_dtypes, or an `out` of bfloat16 or uint16.
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
    >>> cbquant.e8m0.decode(np.array([0, 254], np.uint8))
    array([5.8774718e-39, 1.7014118e+38], dtype=float32)
    """
    return _codecs.decode("e8m0", codes, dtype, out, threads)


def encode(
    amax: Any,
    rule: str = "floor",
    element: str = "e2m1",
    *,
    emax: int | None = None,
    mbits: int | None = None,
    largest: float | None = None,
    out: NDArray[np.uint8] | None = None,
    threads: int | None = None,
) -> NDArray[np.uint8]:
    """Choose the scales of blocks by their largest magnitudes.

    Parameters
    ----------
    amax : array
        The largest magnitude of each block (signs do not count): float32, float64, float16 or bfloat16, of any shape
        and strides. Every bit counts, also of float64 and of subnormal numbers.
    rule : "floor", "ceil", "even" or "ggml"
        With 2^n <= amax < 2^(n + 1), the scale is

        - "floor": 2^(n - `emax`), the rule of OCP MX 1.0. Elements beyond the largest value saturate.
        - "ceil": the smallest power of two with amax <= `largest` * scale. Nothing saturates.
        - "even": as "floor", with amax first rounded to `mbits` mantissa bits, ties to even.
        - "ggml": that of GGUF's mxfp4 blocks: 2^(floor(log2(amax)) - 2), with amax and its logarithm in float32, so
          that the last numbers below a power of two count as that power.
    element : str
        The kind of the elements: "e2m1", "e2m3", "e3m2", "mxint8" or one of `cbquant.fp8.KINDS`. It gives the three
        numbers below; "ggml" is for "e2m1" alone.
    emax : int, optional
        The exponent of the largest element, -127 to 127: 2 for e2m1 and e2m3, 4 for e3m2, 8 for e4m3fn, 15 for e5m2,
        0 for mxint8.
    mbits : int, optional
        Mantissa bits of the elements, 0 to 51 (6 for mxint8).
    largest : float, optional
        The largest element, from 2^-126 up: 6 for e2m1.
    out : ndarray of uint8, optional
        Where to write: C-contiguous, writable, of the shape of `amax`, apart from it.
    threads : int, optional
        As for `cbquant.dequant`.

    Returns
    -------
    ndarray of uint8
        In the shape of `amax`; `out`, or a new array. Scales out of range are 0 or 254, 0 for an `amax` of zero, 255
        (NaN) for infinity and NaN.

    Raises
    ------
    TypeError, ValueError
        `amax` of another type or byte order, an unknown rule or element, a number that the rule does not use or that is
        out of range, an `out` that does not fit. Nothing is written.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> amax = np.array([6.0, 6.1, 7.9, 8.0, 0.0, np.nan], np.float32)
    >>> for rule in "floor", "ceil", "even":
    ...     print(rule, cbquant.e8m0.encode(amax, rule).tolist())
    floor [127, 127, 127, 128, 0, 255]
    ceil [127, 128, 128, 128, 0, 255]
    even [127, 127, 128, 128, 0, 255]
    >>> cbquant.e8m0.encode(amax, element="e4m3fn").tolist()
    [121, 121, 121, 122, 0, 255]
    """
    numbers = _codecs.scale_rule(rule, element, emax, mbits, largest)
    return _codecs.encode("e8m0", amax, out, threads, name="amax", **numbers)
