"""A library that the shim was built into, from Python."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


class ShimError(Exception):
    """A call failed; `code` is CUDA's, and the text says what the shim saw."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Shim:
    """The functions of a library, and arrays in its device memory.

    `shim.call("function", ...)` calls a C function that returns a cudaError_t; an array of `upload` or `empty` is
    passed as its address.
    """

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        for name in ("shim_error", "cudaGetErrorName", "cudaGetErrorString"):
            getattr(self.library, name).restype = ctypes.c_char_p
        self.library.shim_live.restype = ctypes.c_size_t
        self.library.shim_launches.restype = ctypes.c_uint64
        self.addresses: list[int] = []

    def call(self, function: str, *arguments: Any) -> None:
        """Raises ShimError where the function returns another value than 0."""
        self.library.shim_clear_error()
        self.check(function, getattr(self.library, function)(*(_argument(a) for a in arguments)))

    def check(self, function: str, code: int) -> None:
        """A ShimError where the code that `function` returned is not 0."""
        if code:
            name = self.library.cudaGetErrorName(code).decode()
            raise ShimError(code, f"{function}: {name}: {self.library.shim_error().decode()}")

    def seed(self, seed: int) -> None:
        """The schedules of the launches from here on."""
        self.library.shim_seed(ctypes.c_uint(seed))

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array in device memory, filled with 0xFF. It ends at a fence, and lives until `free`."""
        dtype = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        address = ctypes.c_void_p()
        self.call("cudaMalloc", ctypes.byref(address), ctypes.c_size_t(count * dtype.itemsize))
        if address.value is None:
            return np.empty(shape, dtype)
        self.addresses.append(address.value)
        memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address.value)
        return np.frombuffer(memory, dtype).reshape(shape)

    def upload(self, values: ArrayLike) -> NDArray[Any]:
        """A copy of an array in device memory."""
        values = np.asarray(values)
        copy = self.empty(values.shape, values.dtype)
        copy[...] = values
        return copy

    def free(self) -> None:
        """Free every array; their fences are looked at. None of them may be used from here on.

        Raises:
            ShimError: something was written beside one of them.
        """
        addresses, self.addresses = self.addresses, []
        for address in addresses:
            self.call("cudaFree", ctypes.c_void_p(address))


def _argument(value: Any) -> Any:
    return ctypes.c_void_p(value.ctypes.data) if isinstance(value, np.ndarray) else value
