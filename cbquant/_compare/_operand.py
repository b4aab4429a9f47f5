"""One side of a comparison: a tensor as rows of numbers, decoded some at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbquant import _api, _formats
from cbquant._buffer import PLAIN_DTYPES
from cbquant._formats import Format
from cbquant._unknown import is_unknown
from cbquant.files import _plain
from cbquant.planes._layout import Layout
from cbquant.planes._tensor import PlanesTensor
from cbquant.tensor import QuantTensor, plain_view

#: The names of formats that are the dtypes of NumPy arrays.
_NAMES = {dtype: fmt for fmt, dtype in {**PLAIN_DTYPES, **_plain._DTYPES}.items()}

_WHOLE = "biu"


def _dtype_name(dtype: np.dtype[Any]) -> str:
    """The dtype's name; of text, bytes and records without their number of bits."""
    is_sized = dtype.type in (np.str_, np.bytes_, np.void)
    return dtype.type.__name__.removesuffix("_") if is_sized else dtype.name


class Operand:
    """A tensor to compare.

    Attributes
    ----------
    shape : tuple of int
        In elements.
    format : str
        A format's name, or that of a dtype that is no format.
    array : ndarray
        The numbers, ``[..., K]``; of block formats, of bf16 and of unknown types the bytes, of planes the codes.
    kind : str
        "real", "whole" or "other": numbers to measure, to compare, and what cannot be decoded.
    """

    def __init__(self, tensor: Any, threads: int | None) -> None:
        self._threads = threads
        #: Where `array` is blocks: their format.
        self._coding: Format | None = None
        #: Where there is no array of blocks or numbers.
        self._planes: Layout | None = None
        if isinstance(tensor, PlanesTensor):
            self._planes, self.array, self.kind = tensor._layout, tensor.codes, "real"
            self.shape, self.format = tensor.shape, tensor.format
        elif isinstance(tensor, QuantTensor):
            self._take_blocks(tensor)
        else:
            self._take_array(np.asarray(tensor))
        self.nbytes = self.array.nbytes if self._planes is None else self._planes.nbytes

    def _take_blocks(self, tensor: QuantTensor) -> None:
        self.shape, self.format = tensor.shape, tensor.format
        self.array, self.kind = tensor.raw, "other"
        if is_unknown(tensor.format):
            return
        own = plain_view(tensor.raw, tensor.format, tensor.shape)
        if own is not None:
            self._take_array(own)
        else:
            self._coding, self.kind = _formats.get(tensor.format), "real"

    def _take_array(self, array: NDArray[Any]) -> None:
        name = _dtype_name(array.dtype)
        self.array, self.shape, self.format = array, array.shape, _NAMES.get(name, name)
        if array.dtype.kind in _WHOLE:
            self.kind = "whole"
        else:  # floats of ml_dtypes are told by their names alone
            self.kind = "real" if name.startswith(("float", "bfloat")) else "other"

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return math.prod(self.shape[:-1])

    @property
    def columns(self) -> int:
        """The elements of a row."""
        return self.shape[-1] if self.shape else 1

    def piece(self, rows: slice, columns: slice) -> NDArray[Any]:
        """Some columns of some rows, ``[rows, columns]``, as they are stored or, of blocks, float32."""
        if self._planes is not None:
            return self._planes.piece(rows, columns, self._threads)
        if self._coding is None:
            return self._stored(rows)[:, columns]
        fmt = self._coding
        first, last = columns.start // fmt.elements, -(-columns.stop // fmt.elements)
        blocks = self._stored(rows)[:, first * fmt.bytes : last * fmt.bytes]
        shape = (len(blocks), (last - first) * fmt.elements)
        values = _api.dequant(blocks, fmt.name, shape, threads=self._threads)
        skipped = first * fmt.elements
        return values[:, columns.start - skipped : columns.stop - skipped]

    def _stored(self, rows: slice) -> NDArray[Any]:
        """These rows of the array; of one that is strided over several axes a copy of them alone."""
        array = self.array
        if array.ndim <= 2 or array.flags.c_contiguous:
            return array.reshape(-1, array.shape[-1] if array.ndim else 1)[rows]
        return array[np.unravel_index(np.arange(rows.start, rows.stop), array.shape[:-1])]
