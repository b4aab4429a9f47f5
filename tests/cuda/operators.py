"""The device's operators under the shim, with arrays of NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.cuda.shim import Shim

#: cbq_cuda_array's types, of csrc/base.h and cuda/host/operators.h.
TYPES: dict[Any, int] = {
    np.dtype(np.float32): 0,
    np.dtype(np.float16): 1,
    np.dtype(ml_dtypes.bfloat16): 2,
    np.dtype(np.int32): 8,
    np.dtype(np.int64): 9,
    np.dtype(np.float64): 10,
}
DIMS = 4


class ArrayStruct(ctypes.Structure):
    """cbq_cuda_array of cuda/host/operators.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("type", ctypes.c_int),
        ("axes", ctypes.c_int),
        ("shape", ctypes.c_int64 * DIMS),
        ("strides", ctypes.c_int64 * DIMS),
    )


class Operands(ctypes.Structure):
    """cbq_cuda_operands."""

    _fields_ = (
        ("arrays", ctypes.POINTER(ArrayStruct)),
        ("numbers", ctypes.POINTER(ctypes.c_double)),
        ("workspace", ctypes.c_void_p),
        ("processors", ctypes.c_int),
        ("shared_memory", ctypes.c_int),
    )


class Operator(ctypes.Structure):
    """cbq_cuda_operator."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("arrays", ctypes.c_int),
        ("numbers", ctypes.c_int),
        ("workspace", ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.POINTER(Operands))),
        ("run", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Operands), ctypes.c_void_p)),
    )


def describe(array: NDArray[Any] | None) -> ArrayStruct:
    if array is None:
        return ArrayStruct()
    strides = [s // array.itemsize for s in array.strides]
    sizes = (ctypes.c_int64 * DIMS)(*array.shape), (ctypes.c_int64 * DIMS)(*strides)
    return ArrayStruct(array.ctypes.data, TYPES[array.dtype], array.ndim, *sizes)


def in_memory_of(shim: Shim, array: NDArray[Any]) -> NDArray[Any]:
    """A copy in device memory, with the same strides (which must not be negative)."""
    span = sum((size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)) + array.itemsize
    place = shim.empty(span if array.size else 0, np.uint8)
    copy: NDArray[Any] = np.ndarray(array.shape, array.dtype, place, 0, array.strides)
    copy[...] = array
    return copy


class Operators:
    """Calls operators by name; arrays that are no outputs are copied to device memory."""

    def __init__(self, shim: Shim) -> None:
        self.shim = shim
        at = shim.library.cbq_cuda_operator_at
        at.restype = ctypes.POINTER(Operator)
        self.known: dict[str, Operator] = {}
        while found := at(len(self.known)):
            self.known[found.contents.name.decode()] = found.contents

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float32) -> NDArray[Any]:
        """An array for results, in device memory, filled with 0xFF."""
        dtype = np.dtype(dtype)
        plain = self.shim.empty(shape, np.uint16 if dtype == ml_dtypes.bfloat16 else dtype)
        return plain.view(dtype) if dtype == ml_dtypes.bfloat16 else plain

    def run(
        self,
        name: str,
        inputs: list[Any],
        outputs: list[NDArray[Any]],
        numbers: Sequence[float] = (),
        processors: int = 3,
        shared_memory: int = 163,
    ) -> None:
        """`shared_memory` is in KiB; 163 is what sm_80 has, 99 the least."""
        operator = self.known[name]
        copies = {id(x): in_memory_of(self.shim, np.asarray(x)) for x in inputs if x is not None}
        arrays = [None if x is None else copies[id(x)] for x in inputs] + outputs
        assert (operator.arrays, operator.numbers) == (len(arrays), len(numbers))
        structs = (ArrayStruct * len(arrays))(*(describe(a) for a in arrays))
        operands = Operands(structs, (ctypes.c_double * len(numbers))(*numbers), None, processors, shared_memory * 1024)
        if operator.workspace:
            workspace = self.shim.empty(operator.workspace(ctypes.byref(operands)), np.uint8)
            operands.workspace = workspace.ctypes.data
        self.shim.check(name, operator.run(ctypes.byref(operands), None))
