"""A call of products: its operands on the device, those of the host copied there, and its results where they belong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant import _arguments, _products
from cbquant.cuda import _operand, _workspace
from cbquant.cuda._array import DeviceArray, itemsize
from cbquant.cuda._dequant import check_apart, check_device_out, device_array, float_type
from cbquant.cuda._error import copy_while_capturing, new_while_capturing
from cbquant.cuda._native import Native, Place, Rows
from cbquant.cuda._operand import Operand
from cbquant.cuda._weight import Weight

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass
class Call:
    """What all operands have in common; the sizes of what is needed in the workspace, in the order of asking."""

    native: Native
    operation: str
    weight: Weight
    stream: int
    sizes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.is_capturing = self.native.is_capturing(self.weight.device, self.stream)

    def need(self, nbytes: int) -> int:
        """The number of a new place in the workspace."""
        self.sizes.append(nbytes)
        return len(self.sizes) - 1

    def from_host(self, name: str) -> None:
        """An operand is on the host: it is copied, which a graph cannot do."""
        if self.is_capturing:
            raise copy_while_capturing(self.operation, name)

    def take(self, array: Any, name: str, writable: bool = False) -> Operand:
        return _operand.take(self.native, array, name, self.weight.device, self.stream, writable)


class Input:
    """An array on the device, or one of the host, which is in the workspace for the call."""

    def __init__(self, call: Call, array: Any, name: str, dtype: str = "") -> None:
        """`array` is on the device, or a contiguous ndarray that C knows as `dtype`."""
        self._call, self.name = call, name
        self._host: NDArray[Any] | None = None
        self.operand: Operand | None = None
        if isinstance(array, np.ndarray):
            call.from_host(name)
            self._host, self._place = array, call.need(array.nbytes)
            self.shape, self.dtype = array.shape, dtype
        else:
            self.operand = call.take(array, name)
            self.shape, self.dtype = self.operand.shape, self.operand.dtype

    def place(self, places: Sequence[Place]) -> Place:
        """Where it is; copied there, if it was on the host."""
        if self.operand is not None:
            return self.operand.memory, self.operand.offset
        memory, offset = places[self._place]
        if self._host is not None:
            self._call.native.upload(memory, offset, self._host.reshape(-1).view(np.uint8), self._call.stream)
        return memory, offset

    def rows(self, places: Sequence[Place]) -> Rows:
        if self.operand is not None:
            return self.operand.rows(self.name)
        return (*self.place(places), self.dtype, self.shape[-1])


def floats(call: Call, x: Any) -> Input:
    """The rows of a product, in float32, float16 or bfloat16."""
    if isinstance(x, np.ndarray):
        values, dtype = _products._floats(x, "x")
        return Input(call, _products._bits(values), "x", dtype)
    taken = Input(call, device_array(x, "x"), "x")
    if taken.dtype not in _arguments.DTYPES:
        raise TypeError(f"x: expected {', '.join(_arguments.DTYPES)}, got {taken.dtype}")
    return taken


class Output:
    """Where the result goes: an array of the caller's, or a new one of the kind that x is."""

    def __init__(self, call: Call, out: Any, x: Any, dtype: str, shape: tuple[int, ...]) -> None:
        self._call, self.shape, self.dtype = call, shape, dtype
        # One of these two; what belongs to the host is in the workspace for the call.
        self._host: NDArray[Any] | None = None
        self.operand: Operand | None = None
        if out is None:
            out = self._new(x)
        self._result = out
        if isinstance(out, np.ndarray):
            self._host = _arguments.check_out(out, shape)
            call.from_host("out")
            self.dtype = _arguments.float_dtype_name(out) or dtype
            self._place = call.need(self._host.nbytes)
        else:
            self.operand = call.take(device_array(out, "out"), "out", writable=True)
            check_device_out(self.operand, shape, None)
            check_apart(self.operand, call.weight, "w")
            self.dtype = float_type(self.operand.dtype)

    def _new(self, x: Any) -> Any:
        """On the host where x is, else of x's library if that can allocate it."""
        if not _operand.is_on_device(x):
            return _arguments.empty(self.shape, self.dtype)
        made = _operand.new_like(x, self.shape)
        if made is not None:
            return made
        if self._call.is_capturing:
            raise new_while_capturing(self._call.operation)
        self._goes_to = x
        return DeviceArray.empty(self.shape, self.dtype, self._call.weight.device, self._call.stream)

    #: The array in whose library the result is handed over, where it is a DeviceArray that was made here.
    _goes_to: Any = None

    def rows(self, places: Sequence[Place]) -> Rows:
        if self.operand is None:
            return (*places[self._place], self.dtype, self.shape[-1])
        memory, offset, _, stride = self.operand.rows("out")
        return memory, offset, self.dtype, stride

    def check_apart_from(self, *inputs: Input) -> None:
        for x in inputs:
            if self.operand is None or x.operand is None or 0 in x.shape or 0 in self.shape:
                continue
            (begin, end), (x_begin, x_end) = self.operand.range, x.operand.range
            if begin < x_end and x_begin < end:
                raise ValueError(f"out: expected memory of its own, it overlaps {x.name}")

    def clear(self, places: Sequence[Place]) -> None:
        """Zeros everywhere: products over nothing."""
        memory, offset, dtype, stride = self.rows(places)
        size = itemsize(dtype)
        for row in range(math.prod(self.shape[:-1])):
            self._call.native.fill(memory, offset + row * stride * size, self.shape[-1] * size, 0, self._call.stream)

    def finish(self, places: Sequence[Place]) -> Any:
        """What the caller gets."""
        if self._host is not None and self._host.size:
            self._call.native.download(*places[self._place], self._host.reshape(-1).view(np.uint8), self._call.stream)
        return self._result if self._goes_to is None else _operand.hand_over(self._result, self._goes_to)


def workspace(call: Call) -> AbstractContextManager[list[Place]]:
    """The places that were asked for, with the workspace held."""
    device, stream = call.weight.device, call.stream
    return _workspace.places(call.native, device, stream, call.sizes, call.operation, call.is_capturing)
