"""Errors of CUDA as exceptions, and a C module that nothing it is called with brings down."""

from __future__ import annotations

import gc
import pickle
import random
from typing import Any

import pytest

import cbquant
from cbquant import cuda
from cbquant.cuda import _driver
from cbquant.testing import assert_bits_equal
from tests.cuda.shim import Shim
from tests.cuda.test_module import live, tensor
from tests.paths import random_blocks


@pytest.mark.parametrize(
    ("function", "code", "operation"),
    [
        ("cudaMalloc", 2, "allocating 374 bytes"),
        ("cudaMemcpyAsync", 1, "copying to the device"),
        ("cudaMemsetAsync", 999, "filling memory"),
        ("cudaStreamSynchronize", 700, "copying to the device"),
        ("cudaStreamIsCapturing", 400, "asking whether a stream captures a graph"),
    ],
)
def test_errors_of_cuda(shim: Shim, function: str, code: int, operation: str) -> None:
    t = cbquant.QuantTensor(random_blocks("q8_0", 3), "q8_0", (96,))
    before = live(shim)
    shim.library.shim_inject(function.encode(), 0, code)
    with pytest.raises(cuda.CudaError) as caught:
        cuda.load(t)
    error = caught.value
    assert (error.code, error.operation) == (code, operation)
    assert str(error).startswith(f"{operation}: ")
    assert str(error).endswith(f" ({error.name}, {code})")
    assert error.name == shim.library.cudaGetErrorName(code).decode()
    assert shim.library.cudaGetLastError() == 0  # the next one who asks is not blamed
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.name, again.code, again.operation) == (str(error), error.name, code, operation)
    del caught, error  # whose frames keep what was allocated
    gc.collect()
    assert live(shim) == before


def test_a_launch_that_fails(shim: Shim) -> None:
    w = cuda.load(tensor("q8_0"))
    shim.library.shim_inject(b"cu_launch", 0, 701)
    with pytest.raises(cuda.CudaError, match="dequant: too many resources") as caught:
        w.dequant()
    assert caught.value.name == "cudaErrorLaunchOutOfResources"
    assert_bits_equal(w.dequant("float32").to_numpy(), w.to_host().dequant())


def test_calls_without_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_driver, "load", lambda: None)
    assert not cuda.is_available()
    assert "built without CUDA" in str(cuda.why_unavailable())
    assert cbquant.info()["cuda"] == "not built"
    assert cuda.device_info()["built_for"] == []
    with pytest.raises(cuda.CudaError, match="load: cbquant was built without CUDA") as caught:
        cuda.load(tensor("q8_0"))
    assert (caught.value.name, caught.value.code) == ("notBuilt", -1)


# ---- the C module itself ----


def test_memory_has_bounds(native: Any) -> None:
    memory = native.malloc(0, 100)
    native.upload(memory, 90, b"0123456789", 0)
    back = bytearray(10)
    native.download(memory, 90, back, 0)
    assert back == b"0123456789"
    for call in (
        lambda: native.upload(memory, 91, b"0123456789", 0),
        lambda: native.download(memory, 101, back, 0),
        lambda: native.fill(memory, 0, 101, 0, 0),
        lambda: native.to_dlpack(memory, 0, (26,), 2, 32, True),
        lambda: native.to_dlpack(memory, 0, (2**40, 2**40), 2, 32, True),
        lambda: native.malloc(0, 0),
        lambda: native.dequant(0, "float32", memory, 16, 100, memory, 0, 0),
        lambda: native.dequant(0, "float32", memory, 0, 4, memory, 64, 0),  # no margin
        lambda: native.dequant(-5, "float32", memory, 16, 1, memory, 64, 0),
        lambda: native.product_workspace(0, (0, 0, 1, 1, 2**30, 0, 1, 0)),  # rows of float32 beyond 32 bits
        lambda: native.upload(memory, -1, b"", 0),
        lambda: native.download(memory, 0, back, 2**64),
    ):
        with pytest.raises(ValueError, match=r"expected|there is no format|too long"):
            call()
    with pytest.raises((BufferError, TypeError)):
        native.download(memory, 0, b"read only", 0)


def test_wrong_arguments_raise(native: Any) -> None:
    """Whatever a function is called with, Python goes on."""
    memory = native.malloc(0, 64)
    junk = [None, -1, 0, 1, 7, 2**31, 2**63, 2**70, 1.5, "float32", "x", (), (1, 2), b"abc", [], object(), memory, True]
    junk += [(memory, 0), (memory, 0, "float32", 1), (12, 0, 1, 1, 256, 0, 1)]
    functions = [getattr(native, name) for name in dir(native) if not name.startswith("_")]
    functions = [f for f in functions if callable(f) and f.__name__ not in ("borrow", "Memory")]
    rng, raised = random.Random(0), 0
    for function in functions:
        for n in range(10):
            for _ in range(60):
                try:
                    function(*rng.choices(junk, k=n))
                except (TypeError, ValueError, BufferError, cuda.CudaError, OverflowError):
                    raised += 1
    assert raised > 5000
    gc.collect()
