"""Whether a GPU does what the shim's model of each wrapped instruction says: the kernels of the shim's own tests, and
the formulas of the PTX ISA in NumPy. They are in a checkout alone."""

from __future__ import annotations

import ctypes
import os
import runpy
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cbquant.cuda import _driver
from cbquant.gpucheck import _data
from cbquant.gpucheck._build import load_build
from cbquant.gpucheck._items import Context, Item, NotRun, Wrong, checkout, need_gpu
from cbquant.gpucheck._probe import find_gpu

LANES, THREADS = np.arange(32), 128


class Device(Protocol):
    """Runs a function of tests/cuda/shim_kernels.cu with copies of arrays on the device, and returns those."""

    def __call__(self, function: str, arrays: Sequence[NDArray[Any]], *numbers: int) -> list[NDArray[Any]]: ...


def items(context: Context) -> Iterator[Item]:
    need_gpu(context)
    root = checkout()
    if root is None:
        raise NotRun("the kernels of these checks are in a checkout of the sources alone (tests/cuda)")
    device = OnGpu(context, build(root, find_gpu().arch))
    for name, check in CHECKS.items():
        yield Item(name, partial(check, device))


# ---- the GPU ----


@cache
def build(root: Path, arch: str) -> Path:
    """tests/cuda/shim_kernels.cu with the instructions of cuda/device, as a library of C functions."""
    cuda = load_build(root)
    folder = Path(tempfile.gettempdir()) / f"cbquant-gpucheck-{os.getuid()}"
    lists = runpy.run_path(str(root / "csrc" / "format_list.py"))["write_format_list"](folder).parent
    library = folder / f"instructions-{os.getpid()}.so"
    includes = [f"-I{path}" for path in (root / "cuda" / "device", root / "csrc", lists)]
    command = [
        cuda.find_toolkit(os.environ).nvcc,
        "-shared",
        "-Xcompiler=-fPIC",
        f"-arch=sm_{arch}",
        "-std=c++17",
        "-O3",
    ]
    command += ["-fmad=false", *includes, str(root / "tests" / "cuda" / "shim_kernels.cu"), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"nvcc: {done.stdout[-1000:]}{done.stderr[-2000:]}")
    return library


class OnGpu:
    """A Device: the library's own CUDA runtime and that of cbquant._cuda share the device's context."""

    def __init__(self, context: Context, library: Path) -> None:
        self._native, self._device = _driver.ready("gpucheck", context.device), context.device
        self._library = ctypes.CDLL(str(library))
        library.unlink()  # it stays mapped

    def __call__(self, function: str, arrays: Sequence[NDArray[Any]], *numbers: int) -> list[NDArray[Any]]:
        memories = []
        for array in arrays:
            memory = self._native.malloc(self._device, array.nbytes)
            self._native.upload(memory, 0, np.ascontiguousarray(array).reshape(-1).view(np.uint8), 0)
            memories.append(memory)
        addresses = [ctypes.c_void_p(memory.address) for memory in memories]
        code = getattr(self._library, function)(*addresses, *numbers)
        if code:
            raise Wrong(f"{function}: CUDA error {code}")
        results = [np.empty_like(array) for array in arrays]
        for memory, result in zip(memories, results, strict=True):
            self._native.download(memory, 0, result.reshape(-1).view(np.uint8), 0)
        return results


# ---- the formulas ----


def instructions(device: Device) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    masks = (1, 2, 4, 8, 16, 31)
    for mask in masks:
        v = rng.integers(0, 2**32, (32, 8), dtype=np.uint32)
        v[:5, 3] = 0x7F800001, 0xFFFFFFFF, 0x7F7FFFFF, 0x3F808000, 0x3F818000  # NaNs, the largest, halfway to even
        v[:5, 4] = 0x3F818000, 0x00000001, 0xFF800000, 0x80000000, 0x00008000
        numbers = rng.integers(-255, 256, (2, 32, 3)).astype(np.float32) * np.array([1, 1, 64], np.float32)
        numbers[:, :8] *= np.array([2.0**-133, 2.0**118, 2.0**-7], np.float32)  # subnormal factors
        v[:, 5:] = _bf16(numbers[0].view(np.uint32)) | _bf16(numbers[1].view(np.uint32)) << np.uint32(16)
        _, out = device("run_instructions", [v, np.full((32, 8), 0xA5A5A5A5, np.uint32)], mask)
        _equal(out[:, 0], v[LANES ^ mask, 0], f"shuffle_xor by {mask}")
        _equal(out[:, 4], v[LANES ^ mask, 1], f"shuffle_xor_bits by {mask}")
        _equal(out[:, 1], np.where(mask <= LANES, v[LANES - mask, 1], v[LANES, 1]), f"shuffle_up by {mask}")
        eight = np.ascontiguousarray(v[:, :2]).view(np.uint8)
        nibbles = [v[:, 2] >> np.uint32(4 * i) & 15 for i in range(4)]
        chosen = np.stack([eight[LANES, nibble & 7] for nibble in nibbles], 1)
        chosen = np.where(np.stack(nibbles, 1) & 8, chosen // 128 * np.uint8(255), chosen)
        _equal(out[:, 2], np.ascontiguousarray(chosen).view(np.uint32)[:, 0], "permute")
        _equal(out[:, 3], _bf16(v[:, 3]) | _bf16(v[:, 4]) << np.uint32(16), "pack_bf16")
        _equal(out[:, 5], v[:, 0] & v[:, 1] | v[:, 2], "and_or")
        with np.errstate(under="ignore"):
            sums = numbers[..., 0] * numbers[..., 1] + numbers[..., 2]  # exact in float32
        halves = [_bf16(half.view(np.uint32)) for half in sums]
        _equal(out[:, 6], halves[0] | halves[1] << np.uint32(16), "fma_bf16x2")
    return {"masks": list(masks)}


def _bf16(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Rounded to nearest even; every NaN is 0x7FFF."""
    rounded = _data.to_bf16(bits.view(np.float32)).astype(np.uint32)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > 0x7F800000
    return np.where(is_nan, np.uint32(0x7FFF), rounded)


def mma_bf16(device: Device) -> dict[str, Any]:
    return mma(device, "run_mma", lambda x: _data.from_bf16(_data.to_bf16(x)), _data.to_bf16)


def mma_f16(device: Device) -> dict[str, Any]:
    return mma(device, "run_mma_f16", lambda x: x.astype(np.float16).astype(np.float32), lambda x: x.astype(np.float16))


def mma(device: Device, function: str, rounded: Callable[[Any], Any], packed: Callable[[Any], Any]) -> dict[str, Any]:
    """Fragments by the PTX ISA ("Matrix Fragments for mma.m16n8k16 with floating point type")."""
    rng, worst = np.random.default_rng(6), 0.0
    g, q = np.divmod(LANES, 4)
    for _ in range(8):
        a, b, c = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 16), (16, 8), (16, 8)))
        a, b = rounded(a), rounded(b)
        of_a = np.stack([a[g + 8 * (i // 2 % 2), 2 * q + i % 2 + 8 * (i // 4)] for i in range(8)], 1)
        of_b = np.stack([b[2 * q + i % 2 + 8 * (i // 2), g] for i in range(4)], 1)
        places = [(g + 8 * (i // 2), 2 * q + i % 2) for i in range(4)]
        of_c = np.stack([c[place] for place in places], 1)
        sums = device(function, [packed(of_a).view(np.uint32), packed(of_b).view(np.uint32), of_c])[2]
        exact = c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
        size = np.abs(c.astype(np.float64)) + np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
        error = np.max([np.abs(sums[:, i] - exact[place]) / size[place] for i, place in enumerate(places)])
        worst = max(worst, float(error))
    if not worst < 2.0**-20:  # a wrong place of a fragment is an error of about 1
        raise Wrong(f"mma: an error of {worst:.1e} of the magnitudes, at most 2^-20")
    return {"error of the magnitudes": worst}


def matrices(device: Device) -> dict[str, Any]:
    """ldmatrix: a lane's two halves of each of four matrices, along a row, or along a column."""
    halves = np.random.default_rng(9).integers(0, 2**16, (4, 8, 8), np.uint16)
    _, out = device("run_matrices", [halves.reshape(32, 8), np.full((32, 8), 0xA5A5A5A5, np.uint32)])
    g, q = np.divmod(LANES, 4)
    for what, first, m in (("as they are", 0, halves), ("transposed", 4, halves.transpose(0, 2, 1))):
        low, high = (m[:, g, 2 * q + i].astype(np.uint32) for i in range(2))
        _equal(out[:, first : first + 4], (low | high << np.uint32(16)).T, f"matrices {what}")
    return {"matrices": 4}


def copies(device: Device) -> dict[str, Any]:
    """Sums of a pipeline of two stages: numbers that are exact in any order."""
    blocks, steps = 264, 9
    x = np.random.default_rng(7).integers(-1000, 1000, (blocks, steps, THREADS, 4)).astype(np.float32)
    _, y = device("run_pipeline", [x, np.full((blocks, THREADS), np.nan, np.float32)], blocks, steps, 0)
    _equal(y, x.sum((1, 3))[:, ::-1], "pipeline")
    return {"blocks": blocks}


def barriers(device: Device) -> dict[str, Any]:
    blocks = 264
    x = np.random.default_rng(8).integers(-1000, 1000, (blocks, THREADS)).astype(np.float32)
    arrays = [x, np.full(blocks, np.nan, np.float32), np.zeros((blocks, 32), np.float32)]
    _equal(device("run_rows", arrays, blocks, 0)[1], x.sum(1), "sums over a block")
    return {"blocks": blocks}


def indices(device: Device) -> dict[str, Any]:
    x, y, z, threads = 3, 2, 2, 64
    out = device("run_indices", [np.full((z, y, x, threads, 6), 0xA5A5A5A5, np.uint32)], x, y, z, threads)[0]
    grid = np.stack(np.meshgrid(range(z), range(y), range(x), range(threads), indexing="ij"), -1)
    _equal(out[..., :4], grid[..., [2, 1, 0, 3]].astype(np.uint32), "indices")
    _equal(out[..., 4:], np.broadcast_to(np.array([threads, y], np.uint32), (z, y, x, threads, 2)), "sizes")
    return {"threads": x * y * z * threads}


def _equal(found: NDArray[Any], expected: NDArray[Any], what: str) -> None:
    same = found == expected
    if not same.all():
        at = np.unravel_index(int(np.argmin(same)), same.shape)
        raise Wrong(f"{what}: {found[at]} at {tuple(map(int, at))}, expected {expected[at]}")


CHECKS: dict[str, Callable[[Device], dict[str, Any]]] = {
    "shuffles, bytes and bits, pairs of bf16": instructions,
    "mma.m16n8k16 of bf16": mma_bf16,
    "mma.m16n8k16 of f16": mma_f16,
    "ldmatrix": matrices,
    "asynchronous copies, their groups and waits": copies,
    "barriers and static shared memory": barriers,
    "indices of threads and blocks": indices,
}
