"""`DeviceArray`: an array on a device, for what no other library made."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant import _arguments
from cbquant.cuda import _driver, _stream
from cbquant.cuda._native import Memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: DLPack's code and bits of a type, and its name in __cuda_array_interface__, which has none for bfloat16.
TYPES = {
    "float32": (2, 32, "<f4"),
    "float16": (2, 16, "<f2"),
    "bfloat16": (4, 16, "<u2"),
    "int32": (0, 32, "<i4"),
}
CUDA, CUDA_MANAGED = 2, 13  # DLPack's numbers of the types of devices


class DeviceArray:
    """An array on a GPU: what results are in where no other library's array says which to make.

    It has no arithmetic: ``torch.from_dlpack(array)``, ``cupy.from_dlpack(array)`` and the like take it as it is,
    through DLPack or ``__cuda_array_interface__`` (where uint16 stands for bfloat16), and `to_numpy` copies it.

    Attributes
    ----------
    shape : tuple of int
    dtype : str
        ``"float32"``, ``"float16"`` or ``"bfloat16"``; ``"int32"`` of indices.
    device : int
        The index of its device.
    """

    __slots__ = ("__weakref__", "_memory", "_offset", "_stream", "device", "dtype", "shape")

    def __init__(self, memory: Memory, offset: int, shape: tuple[int, ...], dtype: str, stream: int) -> None:
        self._memory, self._offset, self._stream = memory, offset, stream
        self.shape, self.dtype, self.device = shape, dtype, memory.device

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: str, device: int, stream: int) -> DeviceArray:
        """New memory, to be written on that stream."""
        nbytes = math.prod(shape) * itemsize(dtype)
        memory = _driver.ready("allocating an array", device).malloc(device, max(nbytes, 1))
        return cls(memory, 0, shape, dtype, stream)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self.size * itemsize(self.dtype)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}, shape={self.shape}, cuda:{self.device})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a DeviceArray without dimensions has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        """Always true, as that of a QuantTensor."""
        return True

    def to_numpy(self, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """A copy on the host, once the stream has written the array.

        Parameters
        ----------
        out : ndarray, optional
            Where to write: C-contiguous, of this shape and dtype (uint16 takes the bits of bfloat16).

        Returns
        -------
        ndarray
            `out`, or a new array.

        Raises
        ------
        ValueError, TypeError
            An `out` that does not fit.
        ImportError
            bfloat16 without ml_dtypes and without `out`.
        CudaError
            The copy failed, or what was to write the array did.
        """
        if self.dtype == "int32":
            result = target = _arguments.check_integers_out(out, self.shape, np.dtype(np.int32))
        else:
            result = _arguments.empty(self.shape, self.dtype) if out is None else out
            target = _arguments.check_out(result, self.shape, self.dtype)
        native = _driver.ready("to_numpy", self.device)
        native.download(self._memory, self._offset, target.reshape(-1).view(np.uint8), self._stream)
        return result

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Refused: a copy from the device should be seen in the program."""
        raise TypeError("a DeviceArray is not on the host: .to_numpy() copies it")

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's type and index of the device."""
        return CUDA, self.device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule, which keeps the memory alive: the array API's ``__dlpack__``. Nothing is copied.

        Raises
        ------
        BufferError
            Another device or a copy is asked for.
        """
        if copy:
            raise BufferError("copy=True: a DeviceArray is handed over as it is, without a copy")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"dl_device: expected {self.__dlpack_device__()}, got {tuple(dl_device)}")
        native = _driver.ready("__dlpack__", self.device)
        if stream != -1:  # -1: the consumer sees to the order himself
            self._wait(_stream.handle(_stream.LEGACY if stream is None else stream))
        code, bits, _ = TYPES[self.dtype]
        versioned = max_version is not None and max_version[0] >= 1
        return native.to_dlpack(self._memory, self._offset, self.shape, code, bits, versioned)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The array as Numba and CuPy see it, version 3; uint16 stands for bfloat16."""
        return {
            "shape": self.shape,
            "typestr": TYPES[self.dtype][2],
            "data": (self._memory.address + self._offset if self.size else 0, False),
            "strides": None,
            "version": 3,
            "stream": _stream.for_others(self._stream),
        }

    def _wait(self, stream: int) -> None:
        """What `stream` is given from now on comes after what this array's stream has been given."""
        if stream != self._stream:
            _driver.ready("waiting for a stream", self.device).order(self.device, self._stream, stream)


def itemsize(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
