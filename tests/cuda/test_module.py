"""cbquant.cuda on the shim: loading, decoding, what is said of devices."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cbquant
from cbquant import cuda
from cbquant.cuda import _driver, _workspace
from cbquant.cuda._layouts import INSTRUCTIONS
from cbquant.testing import assert_bits_equal
from tests.cuda.device_arrays import WithDLPack, WithInterface, upload
from tests.cuda.products import FRAGMENTS
from tests.cuda.shim import Shim
from tests.paths import ROOT, as_float, random_blocks
from tests.test_contributing import blocks, run_block

FORMATS = {f.name: f for f in cbquant.formats()}
WITH_LAYOUTS = [*((fmt, "blocks") for fmt in FORMATS), *((fmt, "fragments") for fmt in FRAGMENTS)]
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def tensor(fmt: str, rows: int = 3, blocks: int = 2) -> cbquant.QuantTensor:
    f = FORMATS[fmt]
    return cbquant.QuantTensor(random_blocks(fmt, rows * blocks), fmt, (rows, blocks * f.elements))


def live(shim: Shim) -> tuple[int, int]:
    nbytes = ctypes.c_size_t()
    return shim.library.shim_live(ctypes.byref(nbytes)), nbytes.value


# ---- load ----


@pytest.mark.parametrize(("fmt", "layout"), WITH_LAYOUTS)
def test_what_is_loaded_comes_back(native: Any, fmt: str, layout: str) -> None:
    t = tensor(fmt)
    w = cuda.load(t, layout=layout)
    back = w.to_host()
    assert (back.format, back.shape) == (w.format, w.shape) == (t.format, t.shape)
    assert (w.nbytes, w.layout) == (t.nbytes, layout)
    assert back.raw.tobytes() == t.raw.tobytes()


def test_the_layout_is_chosen(native: Any) -> None:
    assert list(INSTRUCTIONS) == FRAGMENTS
    for fmt in FORMATS:
        assert cuda.load(tensor(fmt)).layout == ("fragments" if fmt in FRAGMENTS else "blocks")
    for shape in [(64,), (0, 64), (1, 2, 3, 64)]:
        t = cbquant.QuantTensor(random_blocks("q8_0", int(np.prod(shape)) // 32), "q8_0", shape)
        assert cuda.load(t).layout == "blocks"
        with pytest.raises(ValueError, match=r"layout: fragments are of weights \[N, K\] or \[E, N, K\], got shape"):
            cuda.load(t, layout="fragments")
    with pytest.raises(ValueError, match="layout: there are no fragments of q2_k, only of q4_0, q4_1"):
        cuda.load(tensor("q2_k"), layout="fragments")
    with pytest.raises(ValueError, match="layout: expected one of auto, blocks, fragments, got 'rows'"):
        cuda.load(tensor("q8_0"), layout="rows")


def test_fragments_take_whole_tiles_and_blocks_go(shim: Shim) -> None:
    before = live(shim)
    w = cuda.load(cbquant.QuantTensor(random_blocks("mxfp4", 65), "mxfp4", (65, 32)))
    reserved = _workspace.of(_driver._native, 0, 0).nbytes
    assert live(shim)[1] - before[1] - reserved == 2 * 64 * 4 * 17 == w._memory.nbytes
    del w


def test_repr_and_sizes(native: Any) -> None:
    w = cuda.load(tensor("q4_k"))
    assert repr(w) == "Weight(q4_k, shape=(3, 512), 864 bytes, cuda:0)"
    assert (w.ndim, w.size) == (2, 1536)


@pytest.mark.parametrize("dtype", [*DTYPES.values(), np.float64, np.int8, np.int64])
def test_arrays_are_plain_formats(native: Any, dtype: Any) -> None:
    x = np.arange(12).reshape(3, 4).astype(dtype)
    back = cuda.load(x[:, ::2]).to_host()
    assert back.shape == (3, 2)
    assert back.raw.tobytes() == np.ascontiguousarray(x[:, ::2]).tobytes()


def test_views_of_tensors_load(native: Any) -> None:
    t = tensor("q8_0", rows=7)
    assert cuda.load(t[1::2]).to_host().raw.tobytes() == t.raw[1::2].tobytes()


@pytest.mark.parametrize("shape", [(0, 64), (2, 0), (64,), (2, 3, 4, 32)])
def test_any_shape_loads_and_decodes(native: Any, shape: tuple[int, ...]) -> None:
    t = cbquant.QuantTensor(random_blocks("q8_0", int(np.prod(shape)) // 32), "q8_0", shape)
    assert_bits_equal(cuda.load(t).dequant("float32").to_numpy(), t.dequant())


def test_memory_goes_with_the_weight(shim: Shim) -> None:
    t = cbquant.QuantTensor(random_blocks("q8_0", 2), "q8_0", (64,))
    before = live(shim)
    w = cuda.load(t)
    assert live(shim)[1] - before[1] == 256 + t.nbytes + 16  # the margins
    del w
    assert live(shim) == before


def test_margins_are_written(native: Any) -> None:
    """compute-sanitizer takes reading of what nobody wrote for a mistake."""
    w = cuda.load(tensor("q8_0"), layout="blocks")
    memory = (ctypes.c_uint8 * w._memory.nbytes).from_address(w._memory.address)
    assert not any(memory[:256])
    assert not any(memory[-16:])


def test_load_refuses(native: Any) -> None:
    planes = cbquant.QuantTensor.from_planes("nf4", np.zeros((2, 24), np.uint8), np.ones(2, np.float32))
    for wrong, error, text in [
        (planes, ValueError, "tensor: k=48 is not a multiple of 32"),
        (cbquant.QuantTensor._wrap(np.zeros(8, np.uint8), "unknown_99", (8,)), ValueError, "cannot be loaded"),
        (b"123", TypeError, "tensor: expected a QuantTensor or an ndarray, got bytes"),
        (np.zeros(4, np.uint8), TypeError, "got uint8; blocks need their format"),
        (np.zeros(4, ">f4"), ValueError, "little-endian"),
    ]:
        with pytest.raises(error) as caught:
            cuda.load(wrong)  # type: ignore[arg-type]
        assert text in str(caught.value)
    with pytest.raises(ValueError, match="device: expected 0 to 0, got 1"):
        cuda.load(tensor("q8_0"), device=1)
    for device in ("cuda:0", True, 1.0):
        with pytest.raises(TypeError, match="device: expected the index of a GPU, got"):
            cuda.load(tensor("q8_0"), device=device)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"made by cbquant\.cuda\.load"):
        cuda.Weight()


def test_each_device_has_its_weights(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CBQUANT_SHIM_DEVICES", "8.0x3,8.6x4")
    w, x = cuda.load(tensor("q8_0"), device=1), np.ones((1, 64), np.float32)
    current = ctypes.c_int(-1)
    shim.call("cudaGetDevice", ctypes.byref(current))
    assert (w.device, current.value) == (1, 0)
    assert cuda.matmul(x, w).shape == (1, 3)
    with pytest.raises(ValueError, match="out: expected an array on device 1, as the others, got device 0"):
        w.dequant(out=cuda.load(tensor("q8_0")).dequant())
    shim.call("cudaGetDevice", ctypes.byref(current))
    assert current.value == 0


# ---- dequant ----


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("fmt", "layout"), WITH_LAYOUTS)
def test_dequant_is_that_of_the_cpu(native: Any, fmt: str, layout: str, dtype: str) -> None:
    t = tensor(fmt)
    w = cuda.load(t, layout=layout)
    array = cuda.dequant(w, dtype)
    assert (array.shape, array.dtype, array.device) == (t.shape, dtype, 0)
    result = array.to_numpy()
    assert result.dtype == DTYPES[dtype]
    expected = t.dequant(dtype)
    assert_bits_equal(*(as_float(a.view(np.uint16) if dtype == "bfloat16" else a) for a in (result, expected)), fmt=fmt)
    name = fmt if layout == "blocks" else f"{fmt}_fragments"
    assert cuda.last_kernel() == f"dequant_{name}_{ {'float32': 'f32', 'float16': 'f16', 'bfloat16': 'bf16'}[dtype] }"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("where", ["host", "dlpack", "interface", "device array"])
def test_dequant_into_out(shim: Shim, dtype: Any, where: str) -> None:
    t = tensor("q6_k")
    w = cuda.load(t)
    name = "bfloat16" if dtype == np.uint16 else np.dtype(dtype).name
    expected = t.dequant(name)
    if where == "host":
        out = values = np.empty(t.shape, dtype)
    elif where == "device array":
        out = w.dequant(name)
        shim.call("cudaMemset", ctypes.c_void_p(out._memory.address), 0, ctypes.c_size_t(out.nbytes))
    else:
        values = upload(shim, np.zeros(t.shape, dtype))
        out = (WithDLPack if where == "dlpack" else WithInterface)(values)
    assert cuda.dequant(w, out=out) is out
    result = out.to_numpy() if where == "device array" else values
    assert result.tobytes() == expected.tobytes()


def test_dequant_with_out_neither_allocates_nor_waits(shim: Shim) -> None:
    w = cuda.load(tensor("q8_0"))
    out = WithDLPack(upload(shim, np.zeros(w.shape, np.float32)))
    for function in (b"cudaMalloc", b"cudaStreamSynchronize", b"cudaMemcpyAsync"):
        shim.library.shim_inject(function, 0, 999)
        w.dequant(out=out)
        with pytest.raises(cuda.CudaError):  # the error is still there, for the first one to call the function
            w.dequant(out=np.empty(w.shape, np.float32))
    assert_bits_equal(out.array, w.to_host().dequant())


@pytest.mark.parametrize(
    ("out", "error", "text"),
    [
        (lambda s: WithDLPack(upload(s, np.zeros((3, 65), np.float32))), ValueError, "out: expected shape (3, 64)"),
        (
            lambda s: WithDLPack(upload(s, np.zeros((3, 64), np.int32))),
            TypeError,
            "out: expected dtype float32, float16",
        ),
        (lambda s: WithDLPack(upload(s, np.zeros((3, 64), np.uint8))), TypeError, "DLPack's type 1 of 8 bits"),
        (lambda s: WithDLPack(upload(s, np.zeros((3, 128), np.float32))[:, ::2]), ValueError, "C-contiguous"),
        (lambda s: WithDLPack(upload(s, np.zeros(193, np.float32))[1:].reshape(3, 64)), ValueError, "multiple of 16"),
        (lambda s: WithInterface(upload(s, np.zeros((3, 64), np.int8))), TypeError, "got |i1"),
        (lambda s: WithInterface(upload(s, np.zeros((3, 64), np.float32)), mask=1), TypeError, "without a mask"),
        (lambda s: np.zeros((3, 65), np.float32), ValueError, "out: expected shape (3, 64)"),
        (lambda s: np.zeros((3, 64), np.int32), TypeError, "out: expected dtype float32, float16, bfloat16, got int32"),
        (lambda s: [0.0], TypeError, "out: expected an ndarray or an array on a GPU, got list"),
    ],
)
def test_out_that_does_not_fit(shim: Shim, out: Any, error: type[Exception], text: str) -> None:
    w = cuda.load(tensor("q8_0"))
    with pytest.raises(error) as caught:
        w.dequant(out=out(shim))
    assert text in str(caught.value)


def test_read_only_out_is_refused(shim: Shim) -> None:
    w = cuda.load(tensor("q8_0"))
    values = upload(shim, np.zeros((3, 64), np.float32))
    address = values.ctypes.data
    values.flags.writeable = False
    for out in (WithDLPack(values), WithInterface(values, data=(address, True))):
        with pytest.raises(ValueError, match="out: expected a writable array"):
            w.dequant(out=out)


def test_dtype_and_out_must_agree(shim: Shim) -> None:
    w = cuda.load(tensor("q8_0"))
    for out in (np.empty(w.shape, np.float16), WithDLPack(upload(shim, np.zeros(w.shape, np.float16)))):
        with pytest.raises(TypeError, match="out: expected dtype float32, got float16"):
            w.dequant("float32", out=out)
    with pytest.raises(TypeError, match="dtype: expected float32, float16, bfloat16"):
        w.dequant("int8")


def test_only_weights_are_decoded(native: Any) -> None:
    with pytest.raises(
        TypeError, match=r"w: expected a cbquant\.cuda\.Weight, got QuantTensor; cbquant\.cuda\.load copies"
    ):
        cuda.dequant(tensor("q8_0"))  # type: ignore[arg-type]


# ---- devices ----


def test_device_info(native: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CBQUANT_SHIM_DEVICES", "8.0x108,8.6x5")
    info = cuda.device_info(1)
    assert (info["name"], info["compute_capability"], info["multiprocessors"]) == ("Shim 8.6", "8.6", 5)
    assert info["built_for"] == ["sm_80", "compute_80"]
    assert "not yet run on a GPU" in repr(info)
    with pytest.raises(ValueError, match="device: expected 0 to 1, got 2"):
        cuda.device_info(2)


@pytest.mark.parametrize(
    ("devices", "sentence"),
    [
        ("no driver", "there is no NVIDIA driver: libcuda.so.1 was not found"),
        ("none", "there is no NVIDIA GPU, or CUDA_VISIBLE_DEVICES hides it"),
        ("7.5x10", "cbquant was built for sm_80 compute_80, and the GPUs have compute capability 7.5"),
    ],
)
def test_why_unavailable(native: Any, monkeypatch: pytest.MonkeyPatch, devices: str, sentence: str) -> None:
    monkeypatch.setenv("CBQUANT_SHIM_DEVICES", devices)
    assert not cuda.is_available()
    assert cuda.why_unavailable() == sentence
    assert cuda.device_info()["why_unavailable"] == sentence


def test_an_old_driver_is_named(native: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        versions = staticmethod(lambda: (12020, 13000))

    error = cuda.CudaError("counting", "cudaErrorInsufficientDriver", 35, "")
    expected = "the driver knows CUDA 12.2, cbquant was built with 13.0: a newer driver is needed"
    assert _driver.sentence(Old(), error) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("built", "capability", "runs"),
    [
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 6), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_90a", (9, 0), True),
        ("sm_100a", (10, 3), False),
        ("sm_100f", (10, 3), True),
        ("sm_120", (12, 1), True),
        ("sm_80 compute_80", (12, 0), True),
        ("sm_90a compute_90a", (10, 0), False),
    ],
)
def test_which_devices_run_a_build(built: str, capability: tuple[int, int], runs: bool) -> None:
    assert _driver.runs_on(built, capability) is runs


def test_kernels_and_their_attributes(native: Any) -> None:
    kernels = {kernel["name"]: kernel for kernel in native.kernels(0)}
    assert {f"dequant_{name}_bf16" for name in FORMATS} < set(kernels)
    assert "matmul_q4_k_bf16_64" in kernels
    assert all(kernel["local_bytes"] == 0 and kernel["registers"] > 0 for kernel in kernels.values())


def test_the_last_kernel_is_that_of_the_thread(native: Any) -> None:
    w, seen = cuda.load(tensor("q8_0"), layout="blocks"), []
    w.dequant("float16")
    thread = threading.Thread(target=lambda: seen.append(cuda.last_kernel()))
    thread.start()
    thread.join()
    assert (cuda.last_kernel(), seen) == ("dequant_q8_0_f16", [None])


def test_events_measure_time(native: Any) -> None:
    begin, end = native.Event(0), native.Event(0)
    begin.record(0)
    end.record(0)
    assert 0 <= begin.elapsed_ms(end) < 1000
    with pytest.raises(TypeError, match="later: expected Event"):
        begin.elapsed_ms(1)


# ---- the page ----


def test_the_examples_of_the_page_run(native: Any) -> None:
    """Those that need a GPU; tests.test_contributing runs the others."""
    names: dict[str, Any] = {"cbquant": cbquant, "np": np}
    found = blocks(ROOT / "docs" / "cuda.md", "py")
    assert found
    for _, code, line in found:
        run_block(code, "cuda.md", line, names)
