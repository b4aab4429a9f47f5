"""bitsandbytes' nested absmax: scales that are themselves 8-bit codes under scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant._arguments import as_float32, check_native, check_whole
from cbquant._buffer import as_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK2 = 256


def absmax(scales: Any, nested: Sequence[Any]) -> NDArray[np.float32]:
    """The scales: ``table2[code] * absmax2``, rounded to float32, plus ``offset``, rounded again, in the shape of
    `scales`.

    Parameters
    ----------
    scales : array of uint8
        The codes.
    nested : (absmax2, table2, offset) or (absmax2, table2, offset, block2)
        float32, one for each `block2` codes in order (256 by default); up to 256 float32 numbers; a number.
    """
    if not isinstance(nested, (tuple, list)) or len(nested) not in (3, 4):
        raise TypeError("nested: expected (absmax2, table2, offset) or (absmax2, table2, offset, block2)")
    codes = np.asarray(as_array(scales, "scales"))
    if codes.dtype != np.uint8:
        raise TypeError(f"scales: expected uint8, the codes of a nested absmax, got dtype {codes.dtype.name}")
    outer, table = (_floats(name, array) for name, array in zip(("absmax2", "table2"), nested, strict=False))
    block2 = check_whole("nested: block2", nested[3]) if len(nested) == 4 else BLOCK2
    if outer.size != -(-codes.size // block2):
        expected = f"{-(-codes.size // block2)} for {codes.size} scales in blocks of {block2}"
        raise ValueError(f"nested: absmax2: expected {expected}, got {outer.size}")
    largest = int(codes.max(initial=0))
    if codes.size and largest >= table.size:
        raise ValueError(f"nested: table2: expected an entry for code {largest}, got {table.size}")
    with np.errstate(over="ignore", invalid="ignore"):  # as the decoder itself
        inner = table[codes.reshape(-1)] * outer[np.arange(codes.size) // block2]
        result: NDArray[np.float32] = (inner + as_float32("nested: offset", nested[2])).reshape(codes.shape)
    return result


def _floats(name: str, given: Any) -> NDArray[np.float32]:
    array = np.asarray(as_array(given, f"nested: {name}"))
    if array.dtype.name != "float32":
        raise TypeError(f"nested: {name}: expected float32, got dtype {array.dtype.name}")
    check_native(array.dtype, f"nested: {name}")
    return array.reshape(-1)
