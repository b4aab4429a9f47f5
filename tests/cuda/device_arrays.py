"""Arrays in the shim's device memory as libraries for GPUs show them: by DLPack, or by __cuda_array_interface__."""

from __future__ import annotations

import ctypes
import sys
import types
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tests.cuda.shim import Shim

HOST, CUDA, BFLOAT = 1, 2, 4  # of DLPack
_VERSIONED_HEAD = 32  # bytes before the tensor in DLManagedTensorVersioned


def bits(array: NDArray[Any]) -> NDArray[Any]:
    """bfloat16 as uint16, which NumPy's own functions know."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


class WithDLPack:
    """An array with DLPack: NumPy's capsule, in which the device (and the code of bfloat16) is another one."""

    def __init__(self, array: NDArray[Any], *, versioned: bool = True, device: int = 0) -> None:
        self.array, self.versioned, self.device = array, versioned, device
        self.streams: list[Any] = []  # those that consumers named

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device

    def __dlpack__(self, *, stream: Any = None, **more: Any) -> Any:
        if more and not self.versioned:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        capsule = bits(self.array).__dlpack__(**({"max_version": (1, 0)} if self.versioned else {}))
        tensor = set_device(capsule, CUDA, self.device)
        if self.array.dtype.name == "bfloat16":
            ctypes.c_uint8.from_address(tensor + 20).value = BFLOAT
        return capsule


def set_device(capsule: Any, kind: int, index: int) -> int:
    """Write another device into a capsule; the address of its DLTensor."""
    versioned = "dltensor_versioned" in repr(capsule)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    managed: int = get(capsule, b"dltensor_versioned" if versioned else b"dltensor")
    tensor = managed + (_VERSIONED_HEAD if versioned else 0)
    (ctypes.c_int32 * 2).from_address(tensor + 8)[:] = [kind, index]
    return tensor


class OnHost:
    """A DeviceArray as if its memory were the host's, which with the shim it is: for consumers without a GPU."""

    def __init__(self, array: Any, versioned: bool) -> None:
        self.array, self.versioned = array, versioned

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST, 0

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self.array.__dlpack__(max_version=(1, 0) if self.versioned else None)
        set_device(capsule, HOST, 0)
        return capsule


class WithInterface:
    """An array with __cuda_array_interface__ alone; `more` replaces parts of it."""

    def __init__(self, array: NDArray[Any], **more: Any) -> None:
        self.array, self.more = array, more

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        array = bits(self.array)
        head = {"shape": array.shape, "typestr": array.dtype.str, "data": (array.ctypes.data, False), "version": 3}
        return {**head, "strides": None if array.flags.c_contiguous else array.strides, **self.more}


def upload(shim: Shim, values: ArrayLike) -> NDArray[Any]:
    """A copy in device memory. bfloat16 is a view of uint16."""
    values = np.asarray(values)
    return shim.upload(bits(values)).view(values.dtype)


def make_library(name: str) -> types.ModuleType:
    """A library that takes DLPack, as a module: `from_dlpack`, `Tensor`, and what it took."""
    module = types.ModuleType(name)

    class Tensor(WithDLPack):
        __module__ = f"{name}._tensor"

    def from_dlpack(array: Any) -> Any:
        module.taken.append((array, array.__dlpack__(stream=module.stream, max_version=(1, 0))))
        return "an array of the library"

    module.Tensor, module.from_dlpack, module.taken, module.stream = Tensor, from_dlpack, [], 1  # type: ignore[attr-defined]
    sys.modules[name] = module
    return module


def capture(shim: Shim, stream: int, on: bool) -> None:
    """The stream captures a graph from here on, or no longer."""
    shim.library.shim_capture(ctypes.c_void_p(stream), int(on))
