"""Streams, graphs, threads, and arrays handed from library to library, on the shim."""

from __future__ import annotations

import gc
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from cbquant import cuda
from cbquant.cuda import _workspace
from tests.cuda.device_arrays import OnHost, WithDLPack, WithInterface, capture, upload
from tests.cuda.product_inputs import FACTORS, IDS, PICKS, RNG, K, N, T, X, tensor
from tests.cuda.shim import Shim

# ---- streams and graphs ----


def test_the_stream_is_the_one_that_is_named(shim: Shim, w: cuda.Weight, stream: int) -> None:
    class Torch:
        cuda_stream = stream

    class CuPy:
        ptr = stream

    class Core:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, stream

    for named in (stream, Torch(), CuPy(), Core()):
        x = WithDLPack(upload(shim, X))
        y = cuda.matmul(x, w, stream=named)
        assert x.streams == [stream]
        assert y.__cuda_array_interface__["stream"] == stream
        assert np.array_equal(y.to_numpy(), cuda.matmul(X, w))


def test_without_a_stream_that_of_the_library_is_taken(
    shim: Shim, w: cuda.Weight, stream: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = types.SimpleNamespace(cuda_stream=stream, ptr=stream)
    torch = types.SimpleNamespace(current_stream=lambda device: current)
    cupy = types.SimpleNamespace(get_current_stream=lambda: current)
    for name, module in (("torch", torch), ("cupy", cupy)):
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(cuda=module))  # type: ignore[arg-type]
        library = type("Tensor", (WithDLPack,), {"__module__": name})
        x = library(upload(shim, X))
        out = library(upload(shim, np.zeros((T, N), np.float32)))
        cuda.matmul(x, w, out=out)
        assert (x.streams, out.streams) == ([stream], [stream])
        w.dequant(out=library(upload(shim, np.zeros(w.shape, np.float16))))
    x = WithInterface(upload(shim, X), stream=stream)
    assert cuda.matmul(x, w).__cuda_array_interface__["stream"] == stream
    assert cuda.matmul(x, w, stream=0).__cuda_array_interface__["stream"] == 1


def test_a_captured_call_makes_nothing(shim: Shim, w: cuda.Weight, experts: cuda.Weight, stream: int) -> None:
    x, out = WithDLPack(upload(shim, X)), WithDLPack(upload(shim, np.zeros((T, N), np.float32)))
    ids, factors = WithDLPack(upload(shim, IDS)), WithDLPack(upload(shim, FACTORS))
    cuda.reserve(w, T, stream=stream)
    cuda.reserve(experts, T, picks=PICKS, stream=stream)
    live, launches = shim.library.shim_live(None), shim.library.shim_launches()
    capture(shim, stream, True)
    cuda.matmul(x, w, out=out, stream=stream)
    first = out.array.copy()
    cuda.moe_matmul(x, experts, ids, factors, out=out, stream=stream)
    assert shim.library.shim_launches() > launches
    assert shim.library.shim_live(None) == live
    capture(shim, stream, False)
    assert np.array_equal(first, cuda.matmul(X, w))
    assert np.array_equal(out.array, cuda.moe_matmul(X, experts, IDS, FACTORS))


def test_what_cannot_be_captured_says_what_to_do(shim: Shim, w: cuda.Weight, stream: int) -> None:
    x, out = WithDLPack(upload(shim, X)), WithDLPack(upload(shim, np.zeros((T, N), np.float32)))
    launches = shim.library.shim_launches()
    capture(shim, stream, True)
    for call, text in [
        (lambda: cuda.matmul(x, w, out=out, stream=stream), "call cbquant.cuda.reserve(w, m, stream=...)"),
        (lambda: cuda.reserve(w, 4, stream=stream), "before the capture"),
        (lambda: cuda.matmul(x, w, stream=stream), "pass out= an array on the device"),
        (lambda: cuda.matmul(X, w, stream=stream), "x is an ndarray, whose copy cannot be captured"),
        (lambda: cuda.matmul(x, w, out=np.zeros((T, N), np.float32), stream=stream), "out is an ndarray"),
        (lambda: w.dequant(stream=stream), "pass out= an array on the device"),
        (lambda: cuda.load(X, stream=stream), "load it before"),
    ]:
        with pytest.raises(cuda.CudaError) as caught:
            call()
        assert text in str(caught.value)
        assert (caught.value.name, caught.value.code) == ("cudaErrorStreamCaptureUnsupported", 900)
        del caught
    assert shim.library.shim_launches() == launches


def test_weights_may_go_while_a_graph_is_captured(shim: Shim, stream: int) -> None:
    w = cuda.load(tensor())
    live = shim.library.shim_live(None)
    capture(shim, stream, True)
    del w
    gc.collect()
    assert shim.library.shim_live(None) == live - 1


def test_workspace_of_a_graph_stays(native: Any, shim: Shim, experts: cuda.Weight, stream: int) -> None:
    x, ids = WithDLPack(upload(shim, X)), WithDLPack(upload(shim, IDS))
    out = WithDLPack(upload(shim, np.zeros((T, PICKS, N), np.float32)))
    cuda.reserve(experts, T, picks=PICKS, stream=stream)
    capture(shim, stream, True)
    cuda.moe_matmul(x, experts, ids, out=out, stream=stream)
    capture(shim, stream, False)
    workspace = _workspace.of(native, 0, stream)
    captured = workspace._memory
    cuda.reserve(experts, 1000, stream=stream)
    assert workspace._kept == [captured]
    assert workspace._memory is not captured


def test_reserve_checks(w: cuda.Weight) -> None:
    for call, kind, text in [
        (lambda: cuda.reserve(w, 0), ValueError, "m: expected a whole number from 1, got 0"),
        (lambda: cuda.reserve(w, 1, picks="x"), TypeError, "picks: expected a whole number"),
        (lambda: cuda.reserve(w, 1, precision="q8"), ValueError, "precision: expected one of bf16, f32"),
        (lambda: cuda.reserve(w, 2**31), ValueError, "m: expected 0 to 2147483647"),
        (lambda: cuda.reserve(tensor(), 1), TypeError, "w: expected a cbquant.cuda.Weight"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(kind) as caught:
            call()
        assert text in str(caught.value)


def test_threads_share_a_stream(native: Any) -> None:
    loaded = [cuda.load(tensor("q4_k", n, K)) for n in (5, 33, 70)]
    xs = [RNG.standard_normal((m, K)).astype(np.float32) for m in (1, 9, 20)]
    expected = [[cuda.matmul(x, w) for x in xs] for w in loaded]

    def work(i: int) -> bool:
        w, x = i % 3, i // 3 % 3
        return np.array_equal(cuda.matmul(xs[x], loaded[w]), expected[w][x])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(36)))


# ---- DeviceArray ----


def test_device_arrays_offer_dlpack(native: Any, stream: int) -> None:
    array = cuda.load(X).dequant("bfloat16")
    assert array.__dlpack_device__() == (2, 0)
    for more, name in [({}, "dltensor"), ({"max_version": (1, 2)}, "dltensor_versioned")]:
        capsule = array.__dlpack__(stream=stream, **more)
        assert f'"{name}"' in repr(capsule)
        memory, code, nbits, shape, strides, read_only = native.from_dlpack(capsule)
        assert (code, nbits, shape, strides, read_only) == (4, 16, (T, K), (K, 1), False)
        assert (memory.address, memory.nbytes) == (array._memory.address, array.nbytes)
        assert f'"used_{name}"' in repr(capsule)
        with pytest.raises(BufferError, match="nobody has taken"):
            native.from_dlpack(capsule)
    kept = array._memory.address
    del array
    gc.collect()
    assert memory.address == kept  # the capsule's consumer keeps it
    for wrong in ({"copy": True}, {"dl_device": (1, 0)}):
        with pytest.raises(BufferError):
            cuda.load(X).dequant().__dlpack__(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_another_consumer_reads_the_capsule(shim: Shim, dtype: str, versioned: bool) -> None:
    array = cuda.load(X).dequant(dtype)
    live = shim.library.shim_live(None)
    view = np.from_dlpack(OnHost(array, versioned))
    assert np.array_equal(view, X.astype(dtype))
    del array
    gc.collect()
    assert shim.library.shim_live(None) == live
    assert np.array_equal(view[1:, ::2], X.astype(dtype)[1:, ::2])
    del view
    gc.collect()
    assert shim.library.shim_live(None) == live - 1


def test_dlpack_of_other_kinds_is_refused(native: Any) -> None:
    for capsule, text in [
        (X.__dlpack__(), r"expected a CUDA device \(type 2\), got 1"),
        (object(), "expected a capsule"),
    ]:
        with pytest.raises(BufferError, match=text):
            native.from_dlpack(capsule)


def test_device_arrays_offer_the_cuda_array_interface(native: Any) -> None:
    for dtype, typestr in (("float32", "<f4"), ("float16", "<f2"), ("bfloat16", "<u2")):
        array = cuda.load(X).dequant(dtype)
        assert array.__cuda_array_interface__ == {
            "shape": (T, K),
            "typestr": typestr,
            "data": (array._memory.address, False),
            "strides": None,
            "version": 3,
            "stream": 1,
        }


def test_device_arrays_are_no_ndarrays(native: Any) -> None:
    array = cuda.load(X).dequant("float16")
    assert repr(array) == f"DeviceArray(float16, shape=({T}, {K}), cuda:0)"
    assert (array.ndim, array.size, array.nbytes, len(array)) == (2, T * K, 2 * T * K, T)
    with pytest.raises(TypeError, match="to_numpy"):
        np.asarray(array)
    out = np.zeros((T, K), np.float16)
    assert array.to_numpy(out) is out
    assert np.array_equal(out, X.astype(np.float16))
    with pytest.raises(TypeError, match="out: expected dtype float16"):
        array.to_numpy(np.zeros((T, K), np.float32))
