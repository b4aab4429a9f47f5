"""A library that the shim was built into, from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tests import ptx

#: shim_launcher of control.h.
LAUNCHER = ctypes.CFUNCTYPE(
    *(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.c_uint),
    *(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t),
)


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
        self.library.shim_launch_through(None)  # the library may be that of another Shim
        for name in ("shim_error", "shim_launched", "cudaGetErrorName", "cudaGetErrorString"):
            getattr(self.library, name).restype = ctypes.c_char_p
        self.library.shim_live.restype = ctypes.c_size_t
        self.library.shim_launches.restype = ctypes.c_uint64
        self.sizes: dict[int, int] = {}  # of live arrays, by address
        self.failure: Exception | None = None

    def call(self, function: str, *arguments: Any) -> None:
        """Raises ShimError where the function returns another value than 0."""
        self.library.shim_clear_error()
        self.check(function, getattr(self.library, function)(*(_argument(a) for a in arguments)))

    def check(self, function: str, code: int) -> None:
        """A ShimError where the code that `function` returned is not 0."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        if code:
            name = self.library.cudaGetErrorName(code).decode()
            raise ShimError(code, f"{function}: {name}: {self.library.shim_error().decode()}")

    def launched(self) -> list[str]:
        """The kernels that were launched since the last call."""
        names: list[str] = self.library.shim_launched().decode().split()
        return names

    def interpret(self, modules: Sequence[ptx.Loaded], seed: int | None = None) -> None:
        """From here on kernels are not run by fibers: the interpreter runs their PTX, with the arguments that the host
        has made. Their memory are the arrays of `upload` and `empty`. `seed` is that of ptx.run."""

        def launch(kernel: bytes, grid: Any, threads: int, shared_bytes: int, args: int, args_bytes: int) -> int:
            name = kernel.decode()
            try:
                module = next(m for m in modules if name in m.module.functions)
                buffers = {start: ptx.Buffer(_bytes_at(start, size)) for start, size in self.sizes.items() if size}
                values = _translate(ctypes.string_at(args, args_bytes), buffers)
                memory = list(buffers.values())
                ptx.run(module, name, tuple(grid[:3]), threads, [values], shared_bytes, seed=seed, buffers=memory)
            except Exception as failure:  # there is C between here and the caller
                self.failure = failure
                return 1
            return 0

        self.launcher = LAUNCHER(launch)  # kept: C calls it
        self.library.shim_launch_through(self.launcher)

    def run_fibers(self) -> None:
        """From here on kernels are run by fibers again."""
        self.library.shim_launch_through(None)

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
        self.sizes[address.value] = count * dtype.itemsize
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
        addresses, self.sizes = list(self.sizes), {}
        for address in addresses:
            self.call("cudaFree", ctypes.c_void_p(address))


def _bytes_at(address: int, size: int) -> NDArray[np.uint8]:
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)


def _translate(arguments: bytes, buffers: dict[int, ptx.Buffer]) -> bytes:
    """The arguments with the interpreter's addresses in place of ours."""
    words = np.frombuffer(arguments, np.uint64).copy()
    for i, word in enumerate(words.tolist()):
        for start, buffer in buffers.items():
            if start <= word <= start + buffer.array.nbytes:
                words[i] = word - start + buffer.address
                break
    return words.tobytes()


def _argument(value: Any) -> Any:
    return ctypes.c_void_p(value.ctypes.data) if isinstance(value, np.ndarray) else value
