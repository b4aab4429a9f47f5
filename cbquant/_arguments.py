"""Checks of arguments that several functions share."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant import _core
from cbquant._buffer import PLAIN_DTYPES, refuse_mask
from cbquant._formats import Format

if TYPE_CHECKING:
    from numpy.typing import NDArray

DTYPES = ("float32", "float16", "bfloat16")
# The plain format of each type that numbers to encode may have.
_SOURCES = {PLAIN_DTYPES[fmt]: fmt for fmt in ("f32", "f64", "f16", "bf16")}
# What an output array may be, without asking for the (slow) name of its dtype.
_OUT_DTYPES = {
    np.dtype(np.float32): "float32",
    np.dtype(np.float16): "float16",
    np.dtype(np.uint16): "bfloat16",
}
_MAX_DIMS = 32  # what NumPy 1 allows
_MAX_ELEMENTS = (2**63 - 1) // 8  # NumPy counts an array's bytes in an int64, also those of an empty one


def as_index(value: Any) -> int | None:
    """A whole number as an int; None for anything else, such as a bool or an array of several numbers."""
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def check_threads(threads: int | None, name: str = "threads") -> int:
    """The argument as C takes it: 0 is the default."""
    if threads is None:
        return 0
    number = as_index(threads)
    if number is None:
        raise TypeError(f"{name}: expected a whole number from 1, got {type(threads).__name__}")
    if not 1 <= number <= _core.MAX_THREADS:
        raise ValueError(f"{name}: expected 1 to {_core.MAX_THREADS}, got {number}")
    return number


def check_whole(name: str, value: Any) -> int:
    """A whole number from 1 up, which C can hold."""
    number = as_index(value)
    if number is None:
        raise TypeError(f"{name}: expected a whole number from 1, got {type(value).__name__}")
    if number < 1:
        raise ValueError(f"{name}: expected a whole number from 1, got {number}")
    if number > _MAX_ELEMENTS:
        raise ValueError(f"{name}: expected at most {_MAX_ELEMENTS}, got {number}")
    return number


def as_float32(name: str, number: Any) -> np.float32:
    """A number of any type rounded to float32, where it is finite."""
    array = as_numbers(number, name)
    if array.size != 1 or array.ndim > 1 or (array.dtype.kind not in "iuf" and array.dtype.name != "bfloat16"):
        raise TypeError(f"{name}: expected one number, got {_kind_of(array, number)}")
    with np.errstate(over="ignore"):
        value: np.float32 = array.astype(np.float32).reshape(-1)[0]
    if not np.isfinite(value):
        raise ValueError(f"{name}: expected a finite float32, got {array.reshape(-1)[0]}")
    return value


def _kind_of(array: NDArray[Any], given: Any) -> str:
    return f"an array of shape {array.shape} and dtype {array.dtype.name}" if array.ndim else type(given).__name__


def as_numbers(x: Any, name: str) -> NDArray[Any]:
    """An array, or what NumPy makes one of, such as a list; its dtype is not looked at."""
    if type(x) is np.ndarray:
        return x
    refuse_mask(x, name)
    if not isinstance(x, (list, tuple)):
        return np.asarray(x)
    try:
        return np.asarray(x)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name}: expected an array, got a {type(x).__name__} that is none: {error}") from None


def check_native(dtype: np.dtype[Any], name: str) -> None:
    if not dtype.isnative:
        raise ValueError(f"{name}: expected native byte order, got dtype {dtype.str}")


def as_floats(x: Any, name: str) -> tuple[NDArray[Any], str]:
    """x as C takes it, and the name of its type there."""
    array = as_numbers(x, name)
    source = _SOURCES.get(array.dtype.name)
    if source is None:
        raise TypeError(f"{name}: expected {', '.join(_SOURCES)}, got {array.dtype.name}")
    check_native(array.dtype, name)
    return np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"]), source


def check_word(name: str, word: Any, words: tuple[str, ...]) -> str:
    if not isinstance(word, str):
        raise TypeError(f"{name}: expected one of {', '.join(words)}, got {type(word).__name__}")
    if word not in words:
        raise ValueError(f"{name}: expected one of {', '.join(words)}, got {word!r}")
    return word


def dtype_name(dtype: Any, out: NDArray[Any] | None) -> str:
    """float32, float16 or bfloat16: what `dtype` says or, where it was left at its default, what `out` is."""
    if isinstance(dtype, str) and dtype in DTYPES:
        name = dtype
    else:
        try:
            given = np.dtype(dtype)
        except TypeError:
            raise TypeError(f"dtype: expected {', '.join(DTYPES)}, got {dtype!r}") from None
        name = given.name
        if name not in DTYPES or dtype is None:
            raise TypeError(f"dtype: expected {', '.join(DTYPES)}, got {name}")
        check_native(given, "dtype")
    if name == "float32" and isinstance(out, np.ndarray):
        return float_dtype_name(out) or name
    return name


def float_dtype_name(array: NDArray[Any]) -> str | None:
    """float32, float16 or bfloat16 (uint16 stands for it), or None for another dtype."""
    known = _OUT_DTYPES.get(array.dtype)
    if known is None and array.dtype.itemsize == 2 and array.dtype.name == "bfloat16":
        return "bfloat16"
    return known


def as_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    given: Iterable[Any] = (shape,)
    # Sets, bytes and texts can be iterated over too, but have no order or are no numbers.
    if isinstance(shape, (Sequence, np.ndarray)) and not isinstance(shape, (str, bytes, bytearray, memoryview)):
        given = np.atleast_1d(shape) if isinstance(shape, np.ndarray) else shape
    dims = tuple(number for number in map(as_index, given) if number is not None)
    if len(dims) != len(tuple(given)):
        raise TypeError(f"shape: expected a whole number or a sequence of them, got {shape!r}")
    if any(d < 0 for d in dims):
        raise ValueError(f"shape: expected dimensions from 0 up, got {dims}")
    if math.prod(d for d in dims if d) > _MAX_ELEMENTS or len(dims) > _MAX_DIMS:
        raise ValueError(f"shape: {dims} is larger than any array can be")
    return dims


def check_shape(f: Format, shape: int | Sequence[int], nbytes: int, name: str = "buf") -> tuple[int, ...]:
    """`shape` as a tuple, where `nbytes` bytes of format `f` are exactly that many elements."""
    dims = as_shape(shape)
    if not dims and f.elements > 1:
        raise ValueError(f"shape: expected at least one dimension for {f.name}, got ()")
    if dims and dims[-1] % f.elements:
        raise ValueError(f"shape {dims}: last dimension {dims[-1]} is not a multiple of {f.elements} ({f.name})")
    expected = math.prod(dims) // f.elements * f.bytes
    if expected != nbytes:
        raise ValueError(f"{name}: expected {expected} bytes for shape {dims} of {f.name}, got {nbytes}")
    return dims


def check_out(out: Any, shape: tuple[int, ...], dtype: str | None = None) -> NDArray[Any]:
    """`out`, viewed as uint16 for bfloat16, once it can take the result; without `dtype` any of the three may be."""
    array = _as_array(out)
    check_native(array.dtype, "out")
    found = float_dtype_name(array)
    if found is None or found != (dtype or found):
        raise TypeError(f"out: expected dtype {dtype or ', '.join(DTYPES)}, got {array.dtype.name}")
    _check_place(array, shape)
    return array.view(np.uint16) if found == "bfloat16" else array


def check_bytes_out(out: Any, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """`out` once it can take bytes of that shape; a new array where it is None."""
    return check_integers_out(out, shape, np.dtype(np.uint8))


def check_integers_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """`out` once it can take integers of that type and shape; a new array where it is None."""
    if out is None:
        return np.empty(shape, dtype)
    array = _as_array(out)
    if array.dtype != dtype:
        found = array.dtype.name if array.dtype.isnative else array.dtype.str
        raise TypeError(f"out: expected dtype {dtype.name}, got {found}")
    _check_place(array, shape)
    return array


def _as_array(out: Any) -> NDArray[Any]:
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out: expected an ndarray, got {type(out).__name__}")
    refuse_mask(out, "out")
    return out


def _check_place(out: NDArray[Any], shape: tuple[int, ...]) -> None:
    if out.shape != shape:
        raise ValueError(f"out: expected shape {shape}, got {out.shape}")
    if not out.flags.c_contiguous:
        raise ValueError("out: expected a C-contiguous array, got a strided one")
    if not out.flags.writeable:
        raise ValueError("out: expected a writable array, got a read-only one")


def check_result(shape: tuple[int, ...]) -> None:
    """A ValueError where no array can have so many elements: weights of shape (2**62, 0) have no bytes, but columns."""
    if math.prod(d for d in shape if d) > _MAX_ELEMENTS:
        raise ValueError(f"shape: the result would have shape {shape}, which is larger than any array can be")


def empty(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    if dtype != "bfloat16":
        return np.empty(shape, dtype)
    try:
        import ml_dtypes
    except ImportError:
        message = 'dtype="bfloat16" needs ml_dtypes: pip install "cbquant[bf16]", or pass a uint16 array as out='
        raise ImportError(message) from None
    return np.empty(shape, ml_dtypes.bfloat16)
