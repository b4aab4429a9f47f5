"""What gpucheck uses of torch, in the shim's device memory: its code for GPUs is run without one. Nothing about time is
true here, and a graph runs again what the test says that it captured."""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.cuda.device_arrays import WithDLPack, upload
from tests.cuda.shim import Shim

bfloat16, float32, int16, int32, uint8 = np.dtype(ml_dtypes.bfloat16), *map(np.dtype, ("f4", "i2", "i4", "u1"))
RNG = np.random.default_rng(0)


class Tensor(WithDLPack):
    """An array on the device."""

    __module__ = "torch"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def t(self) -> Tensor:
        return Tensor(self.array.T)

    def __getitem__(self, index: Any) -> Tensor:
        return Tensor(self.array[index])

    def view(self, dtype: Any) -> Tensor:
        return Tensor(self.array.view(dtype))

    def flatten(self) -> Tensor:
        return Tensor(self.array.reshape(-1))

    def clone(self) -> Tensor:
        return Tensor(self.array.copy())

    def copy_(self, source: Tensor) -> None:
        self.array[...] = source.array

    def fill_(self, value: float) -> None:
        self.array[...] = value

    def normal_(self) -> None:
        self.array[...] = RNG.standard_normal(self.shape).astype(self.array.dtype)

    def random_(self) -> Tensor:
        self.array[...] = RNG.integers(0, 255, self.shape)
        return self

    def numel(self) -> int:
        return self.array.size

    def element_size(self) -> int:
        return self.array.itemsize

    def tolist(self) -> list[int]:
        return list(self.array.tolist())


class Stream:
    """One of the shim's."""

    def __init__(self, shim: Shim) -> None:
        handle = ctypes.c_void_p()
        shim.call("cudaStreamCreate", ctypes.byref(handle))
        self.cuda_stream = handle.value

    def synchronize(self) -> None:
        """Nothing is under way."""


class Event:
    """Counts a millisecond for each pair."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self, stream: Stream) -> None:
        """Nothing is timed."""

    def synchronize(self) -> None:
        """Nothing is under way."""

    def elapsed_time(self, end: Event) -> float:
        return 1.0


class Graph:
    """Runs again what `Cuda.captured` is."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda

    def replay(self) -> None:
        self._cuda.captured()


class Cuda:
    """torch.cuda."""

    def __init__(self, shim: Shim) -> None:
        self.shim, self._current = shim, Stream(shim)
        self.captured: Callable[[], object] = lambda: None
        self.captures = 0

    def is_available(self) -> bool:
        return True

    def set_device(self, device: int) -> None:
        assert device == 0

    def Stream(self) -> Stream:
        return Stream(self.shim)

    def Event(self, enable_timing: bool = False) -> Event:
        return Event(enable_timing)

    def CUDAGraph(self) -> Graph:
        return Graph(self)

    def current_stream(self, device: int) -> Stream:
        return self._current

    def synchronize(self) -> None:
        """Nothing is under way."""

    def empty_cache(self) -> None:
        """There is none."""

    def memory_allocated(self) -> int:
        nbytes = ctypes.c_size_t()
        self.shim.library.shim_live(ctypes.byref(nbytes))
        return nbytes.value

    def mem_get_info(self) -> tuple[int, int]:
        return (1 << 30) - self.memory_allocated(), 1 << 30

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self._current = self._current, stream
        yield
        self._current = before

    @contextmanager
    def graph(self, graph: Graph, stream: Stream) -> Iterator[None]:
        """The shim refuses, while a stream captures, what cannot be captured."""
        self.captures += 1
        self.shim.library.shim_capture(ctypes.c_void_p(stream.cuda_stream), 1)
        try:
            with self.stream(stream):
                yield
        finally:
            self.shim.library.shim_capture(ctypes.c_void_p(stream.cuda_stream), 0)


def make(shim: Shim) -> Any:
    """The module."""
    torch: Any = types.ModuleType("torch")
    torch.cuda, torch.Tensor = Cuda(shim), Tensor
    torch.bfloat16, torch.float32, torch.int16, torch.int32, torch.uint8 = bfloat16, float32, int16, int32, uint8

    def put(values: NDArray[Any]) -> Tensor:
        return Tensor(upload(shim, values))

    def of(draw: Callable[..., Any]) -> Callable[..., Tensor]:
        def new(*shape: Any, dtype: Any = float32, device: str) -> Tensor:
            assert device == "cuda"
            return put(np.asarray(draw(shape[0] if isinstance(shape[0], tuple) else shape)).astype(dtype))

        return new

    torch.randn, torch.rand, torch.empty = of(RNG.standard_normal), of(RNG.random), of(np.zeros)

    def randint(low: int, high: int, shape: tuple[int, ...], dtype: Any, device: str) -> Tensor:
        return put(RNG.integers(low, high, shape).astype(dtype))

    def mm(a: Tensor, b: Tensor, out: Tensor) -> None:
        out.array[...] = (a.array.astype(np.float32) @ b.array.astype(np.float32)).astype(out.array.dtype)

    def bincount(values: Tensor, minlength: int) -> Tensor:
        return Tensor(np.bincount(values.array, minlength=minlength))

    def equal(a: Tensor, b: Tensor) -> bool:
        return bool(np.array_equal(a.array, b.array))

    def einsum(formula: str, a: Tensor, b: Tensor) -> Tensor:
        return Tensor(np.einsum(formula, a.array.astype("f4"), b.array.astype("f4")))

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        assert q.shape[:2] == k.shape[:2] == v.shape[:2]
        return q

    torch.add = lambda a, b: Tensor(a.array + b.array)
    torch.relu, torch.sqrt = (lambda x: Tensor(np.maximum(x.array, 0))), (lambda x: Tensor(np.sqrt(x.array)))
    torch.topk, torch.einsum = (lambda x, k: Tensor(np.sort(x.array)[..., -k:])), einsum
    softplus = lambda x: Tensor(np.logaddexp(x.array, 0))  # noqa: E731
    torch.nn = types.SimpleNamespace(
        functional=types.SimpleNamespace(softplus=softplus, scaled_dot_product_attention=attention)
    )
    torch.empty_like = lambda tensor: put(np.zeros(tensor.shape, tensor.array.dtype))
    torch.randint, torch.mm, torch.matmul, torch.bincount, torch.equal = randint, mm, mm, bincount, equal
    return torch
