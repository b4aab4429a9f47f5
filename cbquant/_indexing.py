"""What may stand between the brackets of a `QuantTensor`."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbquant._arguments import as_numbers


def expand_ellipsis(keys: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    places = [place for place, key in enumerate(keys) if key is Ellipsis]
    if not places:
        return keys
    if len(places) > 1:
        raise IndexError("an index can have only one ellipsis")
    (place,) = places
    return keys[:place] + (slice(None),) * (ndim - len(keys) + 1) + keys[place + 1 :]


def axis_key(key: Any, axis: int, length: int) -> int | slice:
    if isinstance(key, slice):
        return key
    try:
        number = None if isinstance(key, bool) else operator.index(key)
    except TypeError:
        number = None
    if number is None:
        name = type(key).__name__
        raise IndexError(f"axis {axis}: expected an int or a slice, got {name}; rows() takes several numbers")
    if not -length <= number < length:
        raise IndexError(f"axis {axis}: index {number} is out of range for length {length}")
    return number


def row_numbers(index: ArrayLike, length: int) -> NDArray[Any]:
    numbers = as_numbers(index, "index")
    if numbers.size == 0 and isinstance(index, (list, tuple)):
        numbers = numbers.astype(np.intp)  # NumPy takes [] for floats
    if numbers.dtype.kind not in "iu":
        raise IndexError(f"index: expected integers, got {numbers.dtype}")
    if numbers.size and not -length <= int(numbers.min()) <= int(numbers.max()) < length:
        worst = int(numbers.max()) if int(numbers.max()) >= length else int(numbers.min())
        raise IndexError(f"index: row {worst} is out of range for length {length}")
    return numbers.astype(np.intp, copy=False)
