"""Arguments of the operators: dtypes, shapes and strides are checked here, before anything is written."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from cbquant._arguments import DTYPES, as_index, as_numbers, check_native, empty, float_dtype_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Decoding one token calls dozens of operators that take a few microseconds each, so what is usual is looked for first,
# and nothing here asks a dtype for its name, which takes longer than many of them.

# Steps that NumPy may take to find out whether two views share an element; where they do not suffice, they may.
_OVERLAP_WORK: Any = 10_000  # NumPy's stubs know its two special values only
MAX_POSITIONS = 2**31 - 1  # of a cache
_MAX_DIMS = 32  # as csrc/array.h has it
# The names of dtypes; bfloat16 joins them when it is first seen.
_NAMES: dict[np.dtype[Any], str] = {np.dtype(np.float32): "float32", np.dtype(np.float16): "float16"}
_BITS = np.dtype(np.uint16)


@cache
def _axes(dims: str) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    """The words of `dims`, and the places and values of those that are numbers."""
    axes = tuple(dims.split())
    return axes, tuple((place, int(axis)) for place, axis in enumerate(axes) if axis.isdigit())


class Sizes(dict[str, int]):
    """What the letters of shapes stand for in one call: the first argument that has a letter says it.

    >>> sizes = Sizes()
    >>> sizes.check("logits", "T E", (3, 8))
    >>> sizes.check("bias", "E", (7,))
    Traceback (most recent call last):
    ValueError: bias: expected [E] with E = 8, got shape (7,)
    """

    def check(self, name: str, dims: str, shape: tuple[int, ...]) -> None:
        """A ValueError where `shape` is not what `dims` says: letters and numbers with blanks between."""
        axes, numbers = _axes(dims)
        known = len(self)
        if len(axes) != len(shape):
            self._refuse(name, axes, shape, known)
        for place, size in numbers:
            if shape[place] != size:
                self._refuse(name, axes, shape, known)
        for axis, size in zip(axes, shape, strict=True):
            if self.setdefault(axis, size) != size:
                self._refuse(name, axes, shape, known)

    def _refuse(self, name: str, axes: tuple[str, ...], shape: tuple[int, ...], known: int) -> NoReturn:
        said = list(self)[:known]  # by arguments before this one
        words = [f"{axis} = {self[axis]}" for axis in axes if axis in said and not axis.isdigit()]
        text = f"[{', '.join(axes)}]" + (f" with {', '.join(words)}" if words else "")
        raise ValueError(f"{name}: expected {text}, got shape {shape}")

    def shape(self, dims: str) -> tuple[int, ...]:
        """The shape that `dims` stands for.

        >>> Sizes(T=3).shape("T 4")
        (3, 4)
        """
        return tuple(int(axis) if axis.isdigit() else self[axis] for axis in _axes(dims)[0])


def floats(x: Any, name: str, dims: str | None = None, sizes: Sizes | None = None) -> NDArray[Any]:
    """`x` as an array of float32, float16 or bfloat16, at its own strides.

    Parameters
    ----------
    x : array
        An array, or anything that NumPy makes one of.
    name : str
        The argument's name in messages.
    dims, sizes
        The shape to have, as for `Sizes.check`; None is any shape.

    Raises
    ------
    TypeError
        Another dtype.
    ValueError
        Another shape, or another byte order than that of the machine.
    """
    array = as_numbers(x, name)
    if array.dtype not in _NAMES:
        _learn(array.dtype, name)
    if dims is not None and sizes is not None:
        sizes.check(name, dims, array.shape)
    elif array.ndim > _MAX_DIMS:
        raise ValueError(f"{name}: expected at most {_MAX_DIMS} dimensions, got {array.ndim}")
    return array


def _learn(dtype: np.dtype[Any], name: str) -> None:
    """A dtype that is not among the known ones yet: bfloat16, or an error."""
    if dtype.name == "bfloat16" and dtype.isnative:
        _NAMES[dtype] = "bfloat16"
        return
    if dtype.name in DTYPES:
        check_native(dtype, name)
    hint = "; .astype(np.float32) makes it so" if dtype.kind in "iuf" and dtype != _BITS else ""
    raise TypeError(f"{name}: expected float32, float16 or bfloat16, got {dtype.name}{hint}")


def positions(x: Any, name: str) -> NDArray[np.int64]:
    """`x` as C takes positions and lengths; what int64 does not hold becomes a number that is too large as well."""
    array = as_numbers(x, name)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{name}: expected integers, got {array.dtype.name}")
    if array.dtype == np.uint64:
        array = np.minimum(array, np.uint64(2**63 - 1))
    return np.require(array, np.int64, ["C_CONTIGUOUS", "ALIGNED"])


def dtype_of(array: NDArray[Any]) -> str:
    """float32, float16 or bfloat16, of an array that came through `floats`."""
    return _NAMES[array.dtype]


def is_dense(array: NDArray[Any], axis: int = -1) -> bool:
    """Whether neighbours along that axis lie side by side."""
    if array.ndim == 0 or array.strides[axis] == array.itemsize:
        return True
    return array.size == 0 or array.shape[axis] == 1


def rows(array: NDArray[Any]) -> NDArray[Any]:
    """The array itself where its last axis is contiguous, else a copy."""
    return array if is_dense(array) else np.ascontiguousarray(array)


def bits(array: NDArray[Any]) -> NDArray[Any]:
    """bfloat16 as uint16, which C takes for it; other types as they are."""
    return array.view(_BITS) if array.dtype.kind == "V" else array


def output(
    out: NDArray[Any] | None,
    shape: tuple[int, ...],
    dtype: str,
    inputs: dict[str, NDArray[Any]],
    *,
    name: str = "out",
    axis: int = -1,
) -> NDArray[Any]:
    """`out` once it can take the result, or a new array.

    Parameters
    ----------
    out : ndarray or None
        An array of any of the three dtypes (uint16 stands for bfloat16), contiguous along `axis`.
    shape : tuple of int
        That of the result.
    dtype : str
        That of a new array.
    inputs : dict
        Arrays that it may not overlap, by the names of their arguments.
    name : str
        Of this output in messages.
    axis : int
        Whose neighbours have to lie side by side.

    Raises
    ------
    TypeError, ValueError
        An `out` that does not fit.
    """
    if out is None:
        return empty(shape, dtype)
    check_output(out, shape, name)
    if not is_dense(out, axis):
        axis_word = "last axis" if axis == -1 else "first axis"
        raise ValueError(f"{name}: expected a contiguous {axis_word}, got strides {out.strides} for shape {shape}")
    check_apart(out, inputs, name)
    return out


def check_output(out: Any, shape: tuple[int, ...], name: str = "out") -> None:
    """An error where `out` is no writable array of that shape and of one of the three dtypes."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{name}: expected an ndarray, got {type(out).__name__}")
    if out.dtype not in _NAMES and float_dtype_name(out) is None:
        if out.dtype.name in DTYPES:
            check_native(out.dtype, name)
        raise TypeError(f"{name}: expected dtype {', '.join(DTYPES)}, got {out.dtype.name}")
    if out.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {out.shape}")
    if not out.flags.writeable:
        raise ValueError(f"{name}: expected a writable array, got a read-only one")
    if (
        0 in out.strides
        and any(size > 1 and not step for size, step in zip(out.shape, out.strides, strict=True))
        and out.size
    ):
        raise ValueError(f"{name}: expected memory for each element, got strides {out.strides} for shape {shape}")


def check_apart(out: NDArray[Any], inputs: dict[str, NDArray[Any]], name: str = "out") -> None:
    """A ValueError where `out` shares memory with one of the arrays."""
    for other, array in inputs.items():
        if shares_memory(out, array):
            raise ValueError(f"{name}: expected memory of its own, it overlaps {other}")


def shares_memory(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two arrays may have an element in common; views that interleave do not."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=_OVERLAP_WORK)
    except np.exceptions.TooHardError:
        return True


def outputs(out: Any, count: int) -> tuple[Any, ...]:
    """`out` of an operator with several results: as many arrays, or None for each."""
    if out is None:
        return (None,) * count
    if not isinstance(out, (tuple, list)):
        raise TypeError(f"out: expected a tuple of {count} arrays, got {type(out).__name__}")
    if len(out) != count:
        raise ValueError(f"out: expected {count} arrays, got {len(out)}")
    return tuple(out)


def whole(value: Any, name: str, low: int, high: int) -> int:
    """A whole number within limits."""
    number = as_index(value)
    if number is None:
        raise TypeError(f"{name}: expected a whole number from {low}, got {type(value).__name__}")
    if not low <= number <= high:
        raise ValueError(f"{name}: expected {low} to {high}, got {number}")
    return number


def number(value: Any, name: str) -> float:
    """A finite number."""
    if isinstance(value, (bool, np.bool_, str)):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    try:
        result = float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}") from None
    if not np.isfinite(result):
        raise ValueError(f"{name}: expected a finite number, got {result}")
    return result


def flag(value: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}: expected True or False, got {type(value).__name__}")
    return bool(value)
