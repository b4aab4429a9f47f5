"""Plain types that safetensors has and GGUF lacks: read as ndarrays, but no formats that cbquant decodes or encodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbquant import _formats
from cbquant._buffer import PLAIN_DTYPES
from cbquant._formats import Format

#: The tag of a type that GGUF has no number for.
NO_TAG = -1

_DTYPES = {"u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "bool": "bool"}


def format_of(name: str) -> Format:
    """The format of that name, one of `cbquant.formats` or of the types that only safetensors has."""
    if name not in _DTYPES:
        return _formats.get(name)
    nbytes = np.dtype(_DTYPES[name]).itemsize
    return Format(name, NO_TAG, 1, nbytes, 8.0 * nbytes, "plain", 1, False, False, f"{_DTYPES[name]}, of safetensors")


def whole_number_dtype(name: str) -> np.dtype[Any] | None:
    """The dtype of a plain type of whole numbers or bools, None for the other formats.

    >>> whole_number_dtype("i16"), whole_number_dtype("bool"), whole_number_dtype("f16")
    (dtype('int16'), dtype('bool'), None)
    """
    own = PLAIN_DTYPES.get(name, _DTYPES.get(name, ""))
    return None if own == "" or "float" in own else np.dtype(own)


def view(raw: NDArray[np.uint8], name: str, shape: tuple[int, ...]) -> NDArray[Any] | None:
    """The bytes of a type that only safetensors has as an ndarray, not copied; None for another format.

    Raises
    ------
    ValueError
        A bool that is neither 0 nor 1: NumPy would take it for both.
    """
    if name not in _DTYPES:
        return None
    if name == "bool" and raw.size and int(raw.max()) > 1:
        raise ValueError(f"a bool is 0 or 1, got {int(raw.max())}")
    array: NDArray[Any] = raw.view(np.dtype(_DTYPES[name]).newbyteorder("<")).reshape(shape)
    return array
