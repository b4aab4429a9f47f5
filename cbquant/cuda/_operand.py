"""Arrays on a device, whoever made them, as places in memory; results in the library of another array."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from cbquant.cuda import _stream
from cbquant.cuda._array import CUDA, CUDA_MANAGED, TYPES, DeviceArray
from cbquant.cuda._native import Memory, Native, Rows

# DLPack's code of a type and its bits, and the typestr of __cuda_array_interface__.
_BY_CODE = {(code, bits): name for name, (code, bits, _) in TYPES.items()}
_BY_CODE |= {(1, 16): "uint16", (0, 64): "int64", (2, 64): "float64"}
_BY_TYPESTR = {"<f4": "float32", "<f2": "float16", "<V2": "bfloat16", "<u2": "uint16", "<i4": "int32", "<i8": "int64"}
_BY_TYPESTR["<f8"] = "float64"
# Addresses have 64 bits, and no array is as large as this: C adds sizes without a look.
_ADDRESSES, _MOST_BYTES = 1 << 64, 1 << 60


@dataclass(frozen=True)
class Operand:
    """An array on a device. `owner` keeps its memory alive."""

    memory: Memory
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: str
    owner: Any

    @property
    def range(self) -> tuple[int, int]:
        """The addresses from its first byte to behind the last that may be its own."""
        begin = self.memory.address + self.offset
        return begin, self.memory.address + self.memory.nbytes

    def rows(self, name: str) -> Rows:
        """As rows of the last axis at one distance: what products take."""
        *shape, columns = self.shape
        *strides, step = self.strides
        if columns > 1 and step != 1:
            raise ValueError(f"{name}: expected neighbours on the last axis, got strides {self.strides}")
        axes = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
        distance = axes[-1][1] if axes else columns
        for (_, outer), (size, inner) in pairwise(axes):
            if outer != size * inner and 0 not in self.shape:
                raise ValueError(
                    f"{name}: expected rows at one distance, got shape {self.shape}, strides {self.strides}"
                )
        if axes and distance < columns and 0 not in self.shape:
            raise ValueError(f"{name}: expected rows that do not overlap, got strides {self.strides}")
        return self.memory, self.offset, self.dtype, max(distance, columns)

    def is_contiguous(self) -> bool:
        """Whether the elements lie one after the other."""
        expected = 1
        for size, stride in zip(self.shape[::-1], self.strides[::-1], strict=True):
            if size != 1 and stride != expected:
                return 0 in self.shape
            expected *= size
        return True

    def check_contiguous(self, name: str) -> None:
        """A ValueError where elements do not lie one after the other."""
        if not self.is_contiguous():
            raise ValueError(f"{name}: expected a C-contiguous array, got strides {self.strides} of shape {self.shape}")


def is_on_device(array: Any) -> bool:
    """Whether `array` is one that `take` takes."""
    if isinstance(array, DeviceArray):
        return True
    if isinstance(array, (np.ndarray, np.generic)):
        return False
    if hasattr(array, "__dlpack_device__"):
        return int(array.__dlpack_device__()[0]) in (CUDA, CUDA_MANAGED)
    return hasattr(array, "__cuda_array_interface__")


def take(native: Native, array: Any, name: str, device: int, stream: int, writable: bool = False) -> Operand:
    """The memory of an array on `device`, for work on `stream`, which waits for what its library has given to do.

    Raises
    ------
    TypeError
        An array of a kind or type that is not known.
    ValueError
        One on another device; a read-only one, where it is to be written.
    """
    if isinstance(array, DeviceArray):
        array._wait(stream)
        operand = Operand(array._memory, array._offset, array.shape, _steps(array.shape), array.dtype, array)
    elif hasattr(array, "__dlpack__"):
        operand = _from_dlpack(native, array, name, stream, writable)
    else:
        operand = _from_interface(native, array, name, device, stream, writable)
    if operand.memory.device != device:
        raise ValueError(
            f"{name}: expected an array on device {device}, as the others, got device {operand.memory.device}"
        )
    return operand


def _from_dlpack(native: Native, array: Any, name: str, stream: int, writable: bool) -> Operand:
    theirs = _stream.for_others(stream)
    try:
        capsule = array.__dlpack__(stream=theirs, max_version=(1, 0))
    except TypeError:  # from before DLPack had versions
        capsule = array.__dlpack__(stream=theirs)
    try:
        memory, code, bits, shape, strides, read_only = native.from_dlpack(capsule)
    except (BufferError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None
    if writable and read_only:
        raise ValueError(f"{name}: expected a writable array, got a read-only one")
    dtype = _BY_CODE.get((code, bits))
    if dtype is None:
        raise TypeError(f"{name}: expected {', '.join(TYPES)}, got DLPack's type {code} of {bits} bits")
    return Operand(memory, 0, shape, strides, dtype, array)


def _from_interface(native: Native, array: Any, name: str, wanted: int, stream: int, writable: bool) -> Operand:
    interface = array.__cuda_array_interface__
    address, read_only = _data_of(interface, name)
    if writable and read_only:
        raise ValueError(f"{name}: expected a writable array, got a read-only one")
    if interface.get("mask") is not None:
        raise TypeError(f"{name}: expected an array without a mask")
    dtype = _BY_TYPESTR.get(interface["typestr"].replace("|", "<"))
    if dtype is None:
        raise TypeError(f"{name}: expected {', '.join(TYPES)}, got {interface['typestr']}")
    itemsize = np.dtype(interface["typestr"]).itemsize
    shape, strides = _places_of(interface, name, itemsize)
    extent = 0 if 0 in shape else 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if extent * itemsize > _MOST_BYTES or address + extent * itemsize > _ADDRESSES:
        raise ValueError(
            f"{name}: expected an array in memory, got {extent * itemsize} bytes from address {address:#x}"
        )
    try:
        device = native.pointer_device(address) if extent else wanted
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    before = interface.get("stream")
    if before is not None and extent and _stream.handle(before) != stream:
        native.order(device, _stream.handle(before), stream)
    return Operand(native.borrow(device, address, extent * itemsize), 0, shape, strides, dtype, array)


def device_of_interface(native: Native, array: Any) -> int:
    """Where an array's memory is; 0 where it has none, or where something is wrong with it, which `take` says."""
    interface = array.__cuda_array_interface__
    try:
        address, _ = _data_of(interface, "")
        return native.pointer_device(address) if 0 not in interface["shape"] else 0
    except (KeyError, TypeError, ValueError):
        return 0


def _data_of(interface: dict[str, Any], name: str) -> tuple[int, bool]:
    """The address, and whether it is to be read only."""
    data = interface.get("data")
    if not isinstance(data, (tuple, list)) or len(data) != 2 or not _is_whole(data[0]):
        raise TypeError(f"{name}: __cuda_array_interface__: expected data of (address, read-only), got {data!r}")
    if not 0 <= data[0] < _ADDRESSES:
        raise ValueError(f"{name}: __cuda_array_interface__: expected an address, got {data[0]}")
    return int(data[0]), bool(data[1])


def _places_of(interface: dict[str, Any], name: str, itemsize: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape, and strides in elements."""
    shape, steps = interface.get("shape"), interface.get("strides")
    if not isinstance(shape, (tuple, list)) or not all(_is_whole(n) and n >= 0 for n in shape):
        raise ValueError(f"{name}: __cuda_array_interface__: expected a shape of numbers from 0, got {shape!r}")
    shape = tuple(int(n) for n in shape)
    if steps is None:
        return shape, _steps(shape)
    if not isinstance(steps, (tuple, list)) or len(steps) != len(shape) or not all(map(_is_whole, steps)):
        raise ValueError(f"{name}: __cuda_array_interface__: expected {len(shape)} strides, got {steps!r}")
    if any(step % itemsize or step < 0 for step in steps):
        raise ValueError(f"{name}: expected strides of whole elements from 0, got {steps} bytes")
    return shape, tuple(int(step) // itemsize for step in steps)


def _is_whole(number: Any) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def _steps(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous array."""
    strides, step = [], 1
    for size in shape[::-1]:
        strides.append(step)
        step *= size
    return tuple(strides[::-1])


def new_like(array: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:
    """A new array of the same library and device, by default of the same dtype; None where that cannot allocate one."""
    new_empty = getattr(array, "new_empty", None)  # torch: memory of its allocator, also while it captures a graph
    if new_empty is None:
        return None
    if dtype is None or str(getattr(array, "dtype", "")).rpartition(".")[2] == dtype:
        return new_empty(shape)
    kind = getattr(sys.modules.get(type(array).__module__.partition(".")[0]), dtype, None)
    return None if kind is None else new_empty(shape, dtype=kind)


def hand_over(result: DeviceArray, array: Any) -> Any:
    """`result` in the library of `array`, where that takes DLPack; else as it is."""
    library = type(array).__module__.partition(".")[0]
    module = sys.modules.get("jax" if library == "jaxlib" else library)
    from_dlpack = getattr(module, "from_dlpack", None) or getattr(getattr(module, "dlpack", None), "from_dlpack", None)
    return result if from_dlpack is None or library == "cbquant" else from_dlpack(result)
