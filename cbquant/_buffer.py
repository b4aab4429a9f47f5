"""Anything that holds bytes -> a contiguous uint8 array, without a copy where there is nothing to gather."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The NumPy dtype of a plain format, where it has one of its own: such arrays are taken as they are.
PLAIN_DTYPES = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
}


def as_bytes(buf: Any, fmt: str | None = None, name: str = "buf") -> NDArray[np.uint8]:
    """The bytes of `buf` as a C-contiguous uint8 array.

    Parameters
    ----------
    buf : buffer or array
        bytes, memoryview, mmap, an array of one-byte items or of records (structured or void dtype), read-only or
        not; an object with ``__dlpack__`` (a torch tensor on the CPU). Strided arrays are copied. The shape is kept;
        the last axis counts bytes.
    fmt : str, optional
        A plain format whose own dtype is accepted too: float16 for ``"f16"``.
    name : str
        The argument's name in messages.

    Raises
    ------
    TypeError
        Not a buffer, or items that are not bytes.
    ValueError
        Big-endian items.
    """
    array = as_array(buf, name)
    dtype = array.dtype
    if _is_big_endian(dtype):
        raise ValueError(f"{name}: expected little-endian bytes, got dtype {dtype}")
    is_record = issubclass(dtype.type, np.void) and not dtype.hasobject
    is_bytes = is_record or dtype.type in (np.uint8, np.int8) or dtype.str == "|S1"
    is_own = is_bytes or (fmt in PLAIN_DTYPES and dtype.name == PLAIN_DTYPES[fmt])
    if not is_own or dtype.hasobject or dtype.itemsize == 0:
        what = f" of {fmt} blocks" if fmt else ""
        hint = "use .view(np.uint8) if these are bytes"
        raise TypeError(f"{name}: expected the bytes{what} (uint8), got dtype {dtype.name}; {hint}")
    if array.ndim == 0:
        array = array.reshape(1)
    if is_record:  # a copy field by field would leave out the gaps between them
        array = array.view(np.ndarray).view(f"V{dtype.itemsize}")
    return np.ascontiguousarray(array).view(np.uint8)


def _is_big_endian(dtype: np.dtype[Any]) -> bool:
    """Whether numbers of this type, or those of a field of it, have their highest byte first."""
    if dtype.subdtype is not None:
        return _is_big_endian(dtype.subdtype[0])
    if dtype.fields is not None:
        return any(_is_big_endian(field[0]) for field in dtype.fields.values())
    return dtype.byteorder == ">"


def refuse_mask(x: Any, name: str) -> None:
    """A TypeError where x is a masked array: its values without its mask are not what was meant."""
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name}: expected a plain array, got a masked one; fill what is masked first")


def as_array(buf: Any, name: str) -> NDArray[Any]:
    refuse_mask(buf, name)
    if isinstance(buf, np.ndarray):
        return buf
    if isinstance(buf, np.generic):  # those of ml_dtypes are no buffers
        return np.asarray(buf)
    try:
        view = memoryview(buf)
    except TypeError:
        if hasattr(buf, "__dlpack__"):
            return np.from_dlpack(buf)
        hint = "; its blocks are its .raw" if hasattr(buf, "raw") else ""
        hint = hint or ("; its values are its .dequant()" if hasattr(buf, "dequant") else "")
        message = f"{name}: expected bytes, a buffer or an array, got {type(buf).__name__}{hint}"
        raise TypeError(message) from None
    return np.asarray(view)
