"""What becomes of each tensor, decided before anything is written."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbquant import _formats
from cbquant._arguments import as_numbers, check_native
from cbquant._unknown import is_unscaled_fp8
from cbquant.convert._rules import DROP, KEEP, PLAIN_TARGETS, Rule, applies, choose, fit
from cbquant.convert.imatrix import Imatrix, checked, read_imatrix
from cbquant.files import File, TensorInfo
from cbquant.files._plain import NO_TAG
from cbquant.files._text import Subject, quoted

#: In place of an importance matrix: all columns matter alike, for formats that cannot be encoded without one.
ONES = "ones"

#: Of a long list of tensors in a message this many are named.
_NAMED = 4

_MAX_DIMS = 4  # of a GGUF file


class Planned(NamedTuple):
    """A tensor that will be written.

    Attributes
    ----------
    info : TensorInfo
        The tensor of the source.
    wanted, format : str
        The format that was chosen, and the one that its rows fit.
    weights : ndarray or None
        The importance of the columns, float32 [matrices, columns], one row a matrix.
    """

    info: TensorInfo
    wanted: str
    format: str
    weights: NDArray[np.float32] | None

    @property
    def nbytes(self) -> int:
        """Bytes in the new file."""
        fmt = _formats.get(self.format)
        return math.prod(self.info.shape) // fmt.elements * fmt.bytes

    @property
    def is_copied(self) -> bool:
        """Whether its bytes stay as they are."""
        return self.format == self.info.format


class Plan(NamedTuple):
    """The tensors to write, in the order of the source, and the names of those left out."""

    tensors: list[Planned]
    dropped: list[str]


def as_imatrix(imatrix: Any) -> Imatrix | str | None:
    """The argument `imatrix` of `quantize_file`: a matrix, ``"ones"`` or None."""
    if imatrix is None or (isinstance(imatrix, str) and imatrix == ONES):
        return imatrix
    if isinstance(imatrix, (str, os.PathLike)):
        return read_imatrix(imatrix)
    if not isinstance(imatrix, Mapping):
        raise TypeError(f"imatrix: expected a path, a dict, 'ones' or None, got {type(imatrix).__name__}")
    matrix = Imatrix({name: _importance(name, values) for name, values in imatrix.items()})
    if isinstance(imatrix, Imatrix):
        vars(matrix).update(vars(imatrix))
    return matrix


def _importance(name: Any, values: Any) -> NDArray[np.float32]:
    if not isinstance(name, str):
        raise TypeError(f"imatrix: expected names of tensors, got a key of type {type(name).__name__}")
    title = f"imatrix: {Subject('tensor', name)}"
    given = as_numbers(values, title)
    if given.dtype.kind not in "fiu" and given.dtype.name != "bfloat16":
        raise TypeError(f"{title}: expected float32, got {given.dtype.type.__name__}")
    check_native(given.dtype, title)
    with np.errstate(over="ignore"):  # an infinity is found next
        return checked(given.astype(np.float32, copy=False), "imatrix", name)


def make_plan(file: File, default: str, rules: Sequence[Rule], imatrix: Imatrix | str | None) -> Plan:
    """Decide it all; ValueErrors name the tensors for which it cannot be done."""
    infos = file.infos.values()
    for rule in rules:
        if not any(applies(rule, info) for info in infos):
            raise ValueError(f"map: no tensor that can be quantized has a name with {quoted(rule.pattern)}")
    chosen = {info.name: choose(info, default, rules) for info in infos}
    for info in infos:
        if info.parts and chosen[info.name] not in (KEEP, DROP):
            _ = file[info.name]  # what its parts hold is looked at now, not when others are written already
    tensors = [
        _planned(info, chosen[info.name], imatrix, file.notes.get(info.name, ""))
        for info in infos
        if chosen[info.name] != DROP
    ]
    _check_imatrix_used(tensors, imatrix)
    _check_imatrix_there(tensors, imatrix)
    return Plan(tensors, [name for name, fmt in chosen.items() if fmt == DROP])


def _planned(info: TensorInfo, chosen: str, imatrix: Imatrix | str | None, note: str) -> Planned:
    what = Subject("tensor", info.name)
    if chosen == KEEP:
        if info.tag == NO_TAG or _formats.by_tag(info.tag) is None:
            raise ValueError(f"{what} is {info.format}, which no GGUF file can hold{_hint(info, note)}")
        fmt = wanted = info.format
    else:
        wanted, fmt = chosen, fit(chosen, info.shape[-1])
    if len(info.shape) > _MAX_DIMS:
        dims = f"{len(info.shape)} dimensions, a GGUF file allows {_MAX_DIMS}"
        raise ValueError(f"{what} has {dims}; map: 'drop' leaves it out")
    is_encoded = fmt != info.format and fmt not in PLAIN_TARGETS
    return Planned(info, wanted, fmt, _weights(info, fmt, imatrix) if is_encoded else None)


def _hint(info: TensorInfo, note: str) -> str:
    """What else can be done with a tensor that cannot be kept, and what is known of it."""
    known = f" ({note})" if note else ""
    if info.parts and len(info.shape) > 1:
        return f"{known}; map: a format such as 'f16' converts it, 'drop' leaves it out"
    if is_unscaled_fp8(info.format) and not note:
        return "; unscaled_fp8=True takes its codes for numbers, map: 'drop' leaves it out"
    return f"{known}; map: 'drop' leaves it out"


def _weights(info: TensorInfo, fmt: str, imatrix: Imatrix | str | None) -> NDArray[np.float32] | None:
    columns = info.shape[-1]
    if isinstance(imatrix, str):
        return np.ones((1, columns), np.float32) if _formats.get(fmt).needs_imatrix else None
    if imatrix is None or info.name not in imatrix:
        return None
    weights, matrices = imatrix[info.name], math.prod(info.shape[:-2])
    allowed: set[tuple[int, ...]] = {(matrices, columns)}
    if matrices == 1:
        allowed.add((columns,))
    if imatrix.is_flat:
        allowed.add((matrices * columns,))
    if weights.shape not in allowed:
        expected = f"({columns},)" if matrices == 1 else f"({matrices}, {columns})"
        what = Subject("tensor", info.name)
        raise ValueError(f"imatrix: {what}: expected values of shape {expected}, got {weights.shape}")
    return weights.reshape(matrices, columns)


def warn_of_zeros(tensors: Sequence[Planned]) -> bool:
    """Warn, once, of blocks whose columns are all said not to matter; whether there are such."""
    names = [
        quoted(tensor.info.name)
        for tensor in tensors
        if tensor.weights is not None
        and not tensor.weights.reshape(-1, _formats.get(tensor.format).elements).any(axis=1).all()
    ]
    if not names:
        return False
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    shown = ", ".join(names[:_NAMED]) + more
    message = f"imatrix: all values are zero over whole blocks of {shown}, which says nothing about them"
    warnings.warn(message, stacklevel=3)
    return True


def _check_imatrix_used(tensors: Sequence[Planned], imatrix: Imatrix | str | None) -> None:
    encoded = [tensor for tensor in tensors if not tensor.is_copied and tensor.format not in PLAIN_TARGETS]
    if isinstance(imatrix, Imatrix) and encoded and all(tensor.weights is None for tensor in encoded):
        raise ValueError(f"imatrix: none of its {len(imatrix)} tensors is quantized here: is it of another model?")


def _check_imatrix_there(tensors: Sequence[Planned], imatrix: Imatrix | str | None) -> None:
    missing = [
        tensor
        for tensor in tensors
        if tensor.weights is None and not tensor.is_copied and _formats.get(tensor.format).needs_imatrix
    ]
    if not missing:
        return
    formats = ", ".join(dict.fromkeys(tensor.format for tensor in missing))
    if imatrix is None:
        hint = "imatrix= takes a file of llama-imatrix, a dict, or 'ones' where all columns matter alike"
        raise ValueError(f"imatrix: {formats} cannot be encoded without an importance matrix: {hint}")
    names = ", ".join(quoted(tensor.info.name) for tensor in missing[:_NAMED])
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    hint = "give them another format with map="
    raise ValueError(f"imatrix: {formats} cannot be encoded without values for {names}{more}: {hint}")
