"""The shim's runtime API: results and errors as CUDA's documentation has them, and errors that a test asks for."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tests.cuda.shim import KERNEL_INCLUDES, Shim, ShimError, build, why_not
from tests.paths import ROOT

FOLDER = ROOT / "tests" / "cuda"
TO_DEVICE, TO_HOST, ON_DEVICE, ANY = 1, 2, 3, 4  # cudaMemcpyKind

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture(scope="module")
def library() -> Shim:
    return Shim(build([FOLDER / "shim_kernels.cu", FOLDER / "shim_host.c"], KERNEL_INCLUDES))


@pytest.fixture
def shim(library: Shim, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shim]:
    yield library
    monkeypatch.undo()
    library.library.cudaGetLastError()
    library.free()
    assert library.library.shim_live(None) == 0


def failure(shim: Shim, function: str, *arguments: object) -> str:
    """The name of the error that a call gives."""
    with pytest.raises(ShimError) as caught:
        shim.call(function, *arguments)
    assert shim.library.cudaGetLastError() == caught.value.code
    assert shim.library.cudaGetLastError() == 0
    return shim.library.cudaGetErrorName(caught.value.code).decode()


def number(shim: Shim, function: str, *arguments: object) -> int:
    """What a call stores through its first argument, an int."""
    value = ctypes.c_int(-1)
    shim.call(function, ctypes.byref(value), *arguments)
    return value.value


def attribute(shim: Shim, which: int, device: int = 0) -> int:
    return number(shim, "cudaDeviceGetAttribute", which, device)


def round_trip(shim: Shim, n: int = 1000) -> None:
    values, back = np.arange(n, dtype=np.int32), np.zeros(n, np.int32)
    milliseconds = ctypes.c_float(-1)
    shim.call("host_round_trip", values, back, ctypes.c_size_t(values.nbytes), ctypes.byref(milliseconds))
    np.testing.assert_array_equal(back, values)
    assert 0 <= milliseconds.value < 1000


def test_c_code_copies_to_the_device_and_back(shim: Shim) -> None:
    round_trip(shim)


CALLS = ["cudaMalloc", "cudaStreamCreateWithFlags", "cudaEventCreate", "cudaEventCreateWithFlags", "cudaEventRecord"]
CALLS += ["cudaMemcpyAsync", "cudaMemsetAsync", "cudaEventSynchronize", "cudaStreamSynchronize", "cudaEventElapsedTime"]


@pytest.mark.parametrize("function", CALLS)
def test_any_call_can_be_made_to_fail_once(shim: Shim, function: str) -> None:
    shim.library.shim_inject(function.encode(), 0, 999)
    values = np.zeros(4)
    arguments = (values, values, ctypes.c_size_t(32), ctypes.byref(ctypes.c_float()))
    assert failure(shim, "host_round_trip", *arguments) == "cudaErrorUnknown"
    round_trip(shim)


def test_a_later_call_can_be_made_to_fail(shim: Shim) -> None:
    shim.library.shim_inject(b"cudaMalloc", 2, 2)
    shim.empty(4, np.uint8)
    shim.empty(4, np.uint8)
    with pytest.raises(ShimError, match="cudaMalloc: cudaErrorMemoryAllocation"):
        shim.empty(4, np.uint8)


def test_launch_can_be_made_to_fail(shim: Shim) -> None:
    shim.library.shim_inject(b"cu_launch", 0, 701)
    out = shim.empty(6 * 32, np.uint32)
    assert failure(shim, "run_indices", out, 1, 1, 1, 32) == "cudaErrorLaunchOutOfResources"
    assert (out == 0xFFFFFFFF).all()


# ---- devices ----


def test_device_is_what_the_environment_asks_for(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    assert number(shim, "cudaGetDeviceCount") == 1
    assert [attribute(shim, which) for which in (75, 76, 16, 97)] == [8, 0, 3, 163 << 10]
    monkeypatch.setenv("CBQUANT_SHIM_DEVICES", "8.6x5,9.0x132")
    assert number(shim, "cudaGetDeviceCount") == 2
    assert [attribute(shim, which) for which in (75, 76, 16, 97)] == [8, 6, 5, 99 << 10]
    assert [attribute(shim, which, 1) for which in (75, 76, 16, 97)] == [9, 0, 132, 227 << 10]
    assert failure(shim, "cudaDeviceGetAttribute", ctypes.byref(ctypes.c_int()), 16, 2) == "cudaErrorInvalidDevice"
    properties = ctypes.create_string_buffer(4096)
    shim.call("cudaGetDeviceProperties", properties, 1)
    assert properties.value == b"Shim 9.0"
    assert failure(shim, "cudaGetDeviceProperties", properties, -1) == "cudaErrorInvalidDevice"


def test_each_thread_has_its_device(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CBQUANT_SHIM_DEVICES", "8.0x3,9.0x4")
    shim.call("cudaSetDevice", 1)
    assert number(shim, "cudaGetDevice") == 1
    of_other = []
    thread = threading.Thread(target=lambda: of_other.append(number(shim, "cudaGetDevice")))
    thread.start()
    thread.join()
    assert of_other == [0]
    assert failure(shim, "cudaSetDevice", 2) == "cudaErrorInvalidDevice"
    shim.call("cudaSetDevice", 0)


@pytest.mark.parametrize(
    ("devices", "error", "driver"),
    [("none", "cudaErrorNoDevice", 13000), ("no driver", "cudaErrorInsufficientDriver", 0)],
)
def test_without_a_device(shim: Shim, monkeypatch: pytest.MonkeyPatch, devices: str, error: str, driver: int) -> None:
    monkeypatch.setenv("CBQUANT_SHIM_DEVICES", devices)
    assert number(shim, "cudaDriverGetVersion") == driver
    count = ctypes.c_int(7)
    assert failure(shim, "cudaGetDeviceCount", ctypes.byref(count)) == error
    assert count.value == 0
    assert failure(shim, "cudaMalloc", ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(8)) == error


def test_errors_have_cudas_names(shim: Shim) -> None:
    names = {
        0: b"cudaSuccess",
        2: b"cudaErrorMemoryAllocation",
        700: b"cudaErrorIllegalAddress",
        5: b"unrecognized error code",
    }
    assert {code: shim.library.cudaGetErrorName(code) for code in names} == names
    assert shim.library.cudaGetErrorString(2) == b"out of memory"


# ---- memory ----


def test_memory_is_poisoned_and_counted(shim: Shim) -> None:
    array = shim.empty(1001, np.uint8)
    assert array.ctypes.data % 256 == 0
    assert (array == 0xFF).all()
    size = ctypes.c_size_t()
    assert shim.library.shim_live(ctypes.byref(size)) == 1
    assert size.value == 1001
    shim.free()
    assert shim.library.shim_live(ctypes.byref(size)) == 0
    assert size.value == 0


def test_memory_has_an_end(shim: Shim) -> None:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    shim.call("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    assert free.value == total.value == 1 << 30
    pointer = ctypes.c_void_p()
    assert failure(shim, "cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(2**30 + 1)) == "cudaErrorMemoryAllocation"
    assert pointer.value is None


def test_copies_check_their_places(shim: Shim) -> None:
    host, device, size = np.arange(8.0), shim.empty(8, np.float64), ctypes.c_size_t(64)
    shim.call("cudaMemcpy", device, host, size, TO_DEVICE)
    np.testing.assert_array_equal(device, host)
    shim.call("cudaMemcpy", device, host, size, ANY)
    other = np.empty(9)
    wrong = [
        (device, host, 64, TO_HOST),
        (device, host, 64, ON_DEVICE),
        (host, host, 64, TO_DEVICE),
        (device, other, 72, TO_DEVICE),
        (device[1:], host, 64, ANY),
    ]
    for to, source, n, kind in wrong:
        assert failure(shim, "cudaMemcpy", to, source, ctypes.c_size_t(n), kind) == "cudaErrorInvalidValue"
    assert failure(shim, "cudaMemcpy", device, host, size, 5) == "cudaErrorInvalidMemcpyDirection"


def test_free_takes_what_malloc_gave(shim: Shim) -> None:
    array = shim.empty(100, np.float32)
    assert failure(shim, "cudaFree", array[1:]) == "cudaErrorInvalidValue"
    assert failure(shim, "cudaFree", np.zeros(4)) == "cudaErrorInvalidValue"
    shim.free()
    assert failure(shim, "cudaFree", array) == "cudaErrorInvalidValue"
    shim.call("cudaFree", None)


class PointerAttributes(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("device_pointer", ctypes.c_void_p),
        ("host_pointer", ctypes.c_void_p),
    )


def test_pointers_tell_where_they_are(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CBQUANT_SHIM_DEVICES", "8.0x3,9.0x4")
    shim.call("cudaSetDevice", 1)
    device, host, found = shim.empty(8, np.float32), np.zeros(8, np.float32), PointerAttributes()
    shim.call("cudaPointerGetAttributes", ctypes.byref(found), device[3:])
    assert (found.type, found.device, found.device_pointer) == (2, 1, device[3:].ctypes.data)
    shim.call("cudaPointerGetAttributes", ctypes.byref(found), host)
    assert found.type == 0
    shim.call("cudaSetDevice", 0)


# ---- streams and launches ----


def test_streams_must_exist(shim: Shim) -> None:
    stream = ctypes.c_void_p()
    shim.call("cudaStreamCreate", ctypes.byref(stream))
    shim.call("cudaStreamQuery", stream)
    shim.call("cudaStreamDestroy", stream)
    for function in ("cudaStreamSynchronize", "cudaStreamQuery", "cudaStreamDestroy"):
        assert failure(shim, function, stream) == "cudaErrorInvalidResourceHandle"
    assert failure(shim, "run_with_shared", ctypes.c_size_t(0), stream) == "cudaErrorInvalidResourceHandle"
    for built_in in (None, ctypes.c_void_p(1), ctypes.c_void_p(2)):
        shim.call("cudaStreamSynchronize", built_in)


def test_capture_forbids_what_would_wait(shim: Shim) -> None:
    stream, pointer = ctypes.c_void_p(), ctypes.c_void_p()
    shim.call("cudaStreamCreate", ctypes.byref(stream))
    status = ctypes.c_int(-1)
    shim.call("cudaStreamIsCapturing", stream, ctypes.byref(status))
    assert status.value == 0
    shim.library.shim_capture(stream, 1)
    shim.call("cudaStreamIsCapturing", stream, ctypes.byref(status))
    assert status.value == 1
    assert failure(shim, "cudaStreamIsCapturing", None, ctypes.byref(status)) == "cudaErrorStreamCaptureImplicit"
    unsupported = "cudaErrorStreamCaptureUnsupported"
    assert failure(shim, "cudaStreamSynchronize", stream) == unsupported
    assert failure(shim, "cudaDeviceSynchronize") == unsupported
    assert failure(shim, "cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(8)) == unsupported
    shim.library.shim_capture(stream, 0)
    shim.call("cudaStreamSynchronize", stream)
    shim.call("cudaStreamDestroy", stream)


@pytest.mark.parametrize("grid", [(0, 1, 1, 32), (1, 65536, 1, 32), (1, 1, 1, 1056), (1, 1, 1, 0)])
def test_launch_checks_its_shape(shim: Shim, grid: tuple[int, int, int, int]) -> None:
    assert failure(shim, "run_indices", shim.empty(1, np.uint32), *grid) == "cudaErrorInvalidConfiguration"


def test_part_of_a_warp_is_refused(shim: Shim) -> None:
    with pytest.raises(
        ShimError, match=r"cudaErrorNotSupported: kernel shim_indices: 1 blocks of 48 threads: the shim"
    ):
        shim.call("run_indices", shim.empty(1, np.uint32), 1, 1, 1, 48)


def test_dynamic_shared_memory_has_a_limit(shim: Shim) -> None:
    assert failure(shim, "run_with_shared", ctypes.c_size_t(164 << 10), None) == "cudaErrorInvalidValue"
    shim.library.kernel_of_indices.restype = ctypes.c_void_p
    kernel = ctypes.c_void_p(shim.library.kernel_of_indices())
    assert failure(shim, "cudaFuncSetAttribute", kernel, 8, 164 << 10) == "cudaErrorInvalidValue"
    shim.call("cudaFuncSetAttribute", kernel, 8, 100 << 10)
    attributes = (ctypes.c_size_t * 8)()
    shim.call("cudaFuncGetAttributes", attributes, kernel)
    assert 100 << 10 in list(ctypes.cast(attributes, ctypes.POINTER(ctypes.c_int * 16))[0])
    assert failure(shim, "cudaFuncGetAttributes", attributes, None) == "cudaErrorInvalidDeviceFunction"


def test_threads_of_the_host_can_launch_side_by_side(shim: Shim) -> None:
    """The lock is the shim's; static shared memory is that of the thread that launches."""
    x = np.random.default_rng(3).integers(-99, 99, (8, 9, 128)).astype(np.float32)
    inputs = [shim.upload(one) for one in x]
    outputs = [(shim.empty(9, np.float32), shim.empty((9, 32), np.float32)) for _ in x]

    def work(i: int) -> None:
        for _ in range(20):
            shim.call("run_rows", inputs[i], *outputs[i], 9, 0)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(len(x))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    np.testing.assert_array_equal([y for y, _ in outputs], x.sum(2))


def test_a_fault_that_is_not_a_kernels_ends_the_process_as_before(library: Shim) -> None:
    """The shim's handler is there while kernels run only."""
    code = f"import ctypes; ctypes.CDLL({library.library._name!r}).run_indices(None, 0, 1, 1, 32); ctypes.string_at(8)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -11
