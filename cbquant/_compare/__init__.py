"""How far tensors are from others of the same names: what quantizing a model has cost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

import cbquant
from cbquant._arguments import check_threads
from cbquant._compare._figures import MAX_BLOCK, compare_pair
from cbquant._compare._operand import Operand
from cbquant._compare._result import Comparison, TensorComparison
from cbquant.files import File
from cbquant.files._text import Subject, quoted
from cbquant.tensor import QuantTensor

__all__ = ["Comparison", "TensorComparison", "compare"]

#: Called with the bytes (of both sides) that are done, those that there are, and the tensor's name.
Progress = Callable[[int, int, str], object]

_BLOCK = 32


def compare(
    a: Any,
    b: Any,
    *,
    block: int = _BLOCK,
    names: str | Sequence[str] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """How far `b` is from `a`, tensor by tensor: what quantizing has cost.

    Tensors are decoded some rows at a time, so that files of any size need little memory. Sums are float64, in an
    order that depends on nothing but the shapes: the figures of a machine are the same in every run.

    Parameters
    ----------
    a, b : path, mapping or tensor
        What is compared with what; `a` is taken to be right. Each is the path of a model file, an open `File`, a dict
        from names to arrays and `QuantTensor`, or one such array or tensor. One tensor compares with one tensor.
    block : int
        Elements of a block, counted from the beginning of each row; the last one of a row may be shorter. From 1 to
        2^20.
    names : str or sequence of str, optional
        Only tensors of these names or shell patterns.
    threads : int, optional
        As for `cbquant.dequant`. The figures do not depend on it.
    progress : callable, optional
        Called with the bytes that are done, those that there are (of both sides), and the tensor's name.

    Returns
    -------
    Comparison
        A list of `TensorComparison`, in the order of `a`, then what only `b` has. It prints as a table;
        ``to_json()`` and ``plot(path)`` give it otherwise.

        Real numbers (block formats, float16, bfloat16, float32, float64) have an RMSE, a relative error, a cosine and
        a worst block. Elements that are NaN or infinite on either side are counted, and left out of these figures.
        Whole numbers are only told to be equal or not, and so are the bytes of a type that is not known. A name that
        one side lacks and shapes that differ are rows with a note.

    Raises
    ------
    OSError, ValueError
        A path that cannot be opened: see `cbquant.open`. A `block` or `threads` out of range, a pattern in `names`
        that fits no tensor.
    TypeError
        Something else than a path, a mapping or a tensor; a tensor and a mapping; a masked array.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
    >>> quantized = cbquant.QuantTensor(cbquant.quantize(x, "q4_0"), "q4_0", x.shape)
    >>> (row,) = cbquant.compare(x, quantized)
    >>> row.format_a, row.format_b, row.relative_error < 0.1, row.cosine > 0.99
    ('f32', 'q4_0', True, True)
    >>> row.worst_block, row.worst_at
    (0, (0, 0))
    >>> [row.note for row in cbquant.compare({"x": x}, {"x": x, "y": x})]
    ['', 'only in b']
    """
    if isinstance(block, (bool, np.bool_)) or not hasattr(block, "__index__"):
        raise TypeError(f"block: expected a whole number from 1, got {type(block).__name__}")
    if not 1 <= block <= MAX_BLOCK:
        raise ValueError(f"block: expected 1 to {MAX_BLOCK}, got {block}")
    check_threads(threads)
    with ExitStack() as stack:
        left, right = _source(a, "a", stack), _source(b, "b", stack)
        if isinstance(left, Mapping) != isinstance(right, Mapping):
            one, other = ("b", "a") if isinstance(left, Mapping) else ("a", "b")
            raise TypeError(f"{one}: expected a mapping of tensors or a path, as {other} is, got a single tensor")
        if not isinstance(left, Mapping):
            if names is not None:
                raise ValueError("names: expected none for single tensors, which have no names")
            left, right = {"": left}, {"": right}
        rows = list(_rows(left, right, chosen_names(left, right, names), int(block), threads, progress))
    return Comparison(rows, a=_title(a, "a"), b=_title(b, "b"), block=int(block))


def _source(given: Any, name: str, stack: ExitStack) -> Any:
    """A mapping of tensors, or a tensor."""
    if isinstance(given, (str, os.PathLike)):
        return stack.enter_context(cbquant.open(given))
    if isinstance(given, File):
        given._opened()
        return given
    if isinstance(given, Mapping):
        wrong = next((key for key in given if not isinstance(key, str)), None)
        if wrong is not None:
            raise TypeError(f"{name}: expected names of tensors, got a key of type {type(wrong).__name__}")
        return given
    if isinstance(given, (bytes, bytearray)) or not (
        isinstance(given, (QuantTensor, list, tuple)) or hasattr(given, "__array__")
    ):
        expected = "a path, a mapping of tensors, an array or a QuantTensor"
        raise TypeError(f"{name}: expected {expected}, got {type(given).__name__}")
    return given


def _title(given: Any, name: str) -> str:
    """What a side is called: the path of a file."""
    if isinstance(given, File):
        return str(given.path)
    return os.fsdecode(given) if isinstance(given, (str, os.PathLike)) else name


def chosen_names(left: Mapping[str, Any], right: Mapping[str, Any], names: str | Sequence[str] | None) -> list[str]:
    """Names of either side that `names` lets through, those of the left side first."""
    every = list(dict.fromkeys([*left, *right]))
    if names is None:
        return every
    if not isinstance(names, Iterable):
        raise TypeError(f"names: expected a name or a list of names, got {type(names).__name__}")
    chosen: set[str] = set()
    for pattern in [names] if isinstance(names, str) else names:
        if not isinstance(pattern, str):
            raise TypeError(f"names: expected names, got {type(pattern).__name__}")
        # A name may hold brackets of its own: as it stands comes first.
        found = {pattern} if pattern in every else {name for name in every if fnmatchcase(name, pattern)}
        if not found:
            raise ValueError(f"names: no tensor is named or matches {quoted(pattern)}")
        chosen |= found
    return [name for name in every if name in chosen]


def _operand(title: str, side: Mapping[str, Any], name: str, threads: int | None) -> Operand | str | None:
    """A tensor to read from; why it cannot be read; None where there is none."""
    if name not in side:
        return None
    try:
        tensor = side[name]
        if not isinstance(tensor, np.ma.MaskedArray):
            return Operand(tensor, threads)
    except (ValueError, TypeError) as error:  # a bool that is neither 0 nor 1, a list of words
        return str(error)
    what = f"{title}: {Subject('tensor', name)}" if name else title
    raise TypeError(f"{what}: expected plain arrays, got a masked one: np.ma.filled makes it plain")


def _rows(
    left: Mapping[str, Any],
    right: Mapping[str, Any],
    names: Sequence[str],
    block: int,
    threads: int | None,
    progress: Progress | None,
) -> Iterator[TensorComparison]:
    """A row for each name."""
    pairs = [(name, _operand("a", left, name, threads), _operand("b", right, name, threads)) for name in names]
    total = sum(side.nbytes for _, *sides in pairs for side in sides if isinstance(side, Operand))
    done = 0
    for name, a, b in pairs:
        size = sum(side.nbytes for side in (a, b) if isinstance(side, Operand))

        def advance(part: float, done: int = done, size: int = size, name: str = name) -> None:
            if progress is not None:
                progress(done + int(part * size), total, name)

        yield compare_pair(name, a, b, block, advance)
        done += size
        advance(1.0)
