"""Comparison by bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# dtype name -> the pattern of +inf: a larger pattern, its sign bit aside, is a NaN. uint16 stands for
# bfloat16.
_INF = {
    "float16": 0x7C00,
    "bfloat16": 0x7F80,
    "uint16": 0x7F80,
    "float32": 0x7F800000,
    "float64": 0x7FF0000000000000,
}
_SHOWN = 5


def assert_bits_equal(actual: Any, expected: Any, *, fmt: str | None = None, err_msg: str = "") -> None:
    """Raise unless two arrays have the same dtype, shape and bits. Any NaN equals any NaN; -0.0 is not 0.0.

    Parameters
    ----------
    actual, expected : array_like
        Of one shape and dtype: float32, float16, float64, bfloat16 (of ml_dtypes), uint16 (taken for bfloat16
        bit patterns) or uint8 (compared as they are).
    fmt : str, optional
        Name of a format: failures then also name the block, and the element in it.
    err_msg : str
        Put in front of the message.

    >>> import numpy as np
    >>> assert_bits_equal(np.float32([1, np.nan]), np.float32([1, np.nan]))
    >>> assert_bits_equal(np.float32([1, 0]), np.float32([1, -0.0]))
    Traceback (most recent call last):
        ...
    AssertionError: 1 of 2 elements differ by bits
      [1]: actual 0.0 (0x00000000), expected -0.0 (0x80000000)

    Raises
    ------
    AssertionError
        They differ; the message counts the differing elements and shows the first of them.
    TypeError
        A dtype that this function does not know.
    ValueError
        `fmt` is not a format.
    """
    __tracebackhide__ = True  # pytest shows the caller
    actual, expected = np.asarray(actual), np.asarray(expected)
    prefix = f"{err_msg}: " if err_msg else ""
    for name, array in (("actual", actual), ("expected", expected)):
        if array.dtype.name not in (*_INF, "uint8") or not array.dtype.isnative:
            raise TypeError(f"{name} has dtype {array.dtype}; known are {', '.join(_INF)}, uint8")
    if actual.dtype != expected.dtype:
        raise AssertionError(f"{prefix}dtypes differ: actual {actual.dtype}, expected {expected.dtype}")
    if actual.shape != expected.shape:
        raise AssertionError(f"{prefix}shapes differ: actual {actual.shape}, expected {expected.shape}")
    elements = _elements(fmt)
    actual_bits, expected_bits = _patterns(actual), _patterns(expected)
    both_nan = _is_nan(actual_bits, actual.dtype) & _is_nan(expected_bits, actual.dtype)
    differing = np.flatnonzero((actual_bits != expected_bits) & ~both_nan)
    if not differing.size:
        return
    lines = [f"{prefix}{differing.size} of {actual.size} elements differ by bits"]
    for index in differing[:_SHOWN].tolist():
        where = str([int(n) for n in np.unravel_index(index, actual.shape)])
        if elements is not None:
            where += f" (block {index // elements}, element {index % elements})"
        got = _show(actual_bits[index], actual.dtype)
        lines.append(f"  {where}: actual {got}, expected {_show(expected_bits[index], actual.dtype)}")
    if differing.size > _SHOWN:
        lines.append(f"  and {differing.size - _SHOWN} more")
    raise AssertionError("\n".join(lines))


def _elements(fmt: str | None) -> int | None:
    if fmt is None:
        return None
    from cbquant import _formats  # only here: a comparison without `fmt` needs no registry

    return _formats.get(fmt).elements


def _patterns(array: NDArray[Any]) -> NDArray[Any]:
    """The bits as unsigned integers, in one dimension."""
    return np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")


def _is_nan(bits: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.bool_]:
    if dtype.name not in _INF:
        return np.zeros(bits.shape, bool)
    sign = 1 << (8 * dtype.itemsize - 1)
    nan: NDArray[np.bool_] = (bits & bits.dtype.type(sign - 1)) > bits.dtype.type(_INF[dtype.name])
    return nan


def _show(bits: np.unsignedinteger[Any], dtype: np.dtype[Any]) -> str:
    """A value with its bits, such as ``-0.0 (0x80000000)``."""
    pattern = f"{int(bits):#0{2 + 2 * dtype.itemsize}x}"
    if dtype.name == "uint8":
        return f"{int(bits)} ({pattern})"
    if dtype.itemsize == 2 and dtype.name != "float16":
        value = np.array(int(bits) << 16, np.uint32).view(np.float32)
    else:
        value = np.array(bits).view(dtype)
    return f"{value[()]!s} ({pattern})"
