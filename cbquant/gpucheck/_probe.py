"""The GPU, asked of the driver alone: before cbquant._cuda is built."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


class Gpu(NamedTuple):
    """The first one."""

    name: str
    capability: tuple[int, int]
    memory_bytes: int

    @property
    def arch(self) -> str:
        """As CBQUANT_CUDA_ARCHS has it; 9.0 with the instructions that it alone has.

        >>> Gpu("H200", (9, 0), 0).arch, Gpu("L4", (8, 9), 0).arch
        ('90a', '89')
        """
        number = f"{self.capability[0]}{self.capability[1]}"
        return "90a" if number == "90" else number


class NoGpu(Exception):
    """There is none to be used, and why."""


def find_gpu() -> Gpu:
    """The first GPU that CUDA_VISIBLE_DEVICES leaves."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise NoGpu("there is no NVIDIA driver: libcuda.so.1 was not found") from None
    code = driver.cuInit(0)
    count = ctypes.c_int()
    if code == 0:
        code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code == NO_DEVICE or (code == 0 and count.value == 0):
        raise NoGpu("there is no NVIDIA GPU, or CUDA_VISIBLE_DEVICES hides it")
    if code:
        raise NoGpu(f"the NVIDIA driver does not start: cuInit returned {code}")
    return _describe(driver)


def _describe(driver: ctypes.CDLL) -> Gpu:
    device, name, memory = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
    major, minor = ctypes.c_int(), ctypes.c_int()
    calls = [
        driver.cuDeviceGet(ctypes.byref(device), 0),
        driver.cuDeviceGetName(name, len(name), device),
        driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device),
        driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device),
        driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device),
    ]
    if any(calls):
        raise NoGpu(f"the NVIDIA driver does not answer: {next(filter(None, calls))}")
    return Gpu(name.value.decode(), (major.value, minor.value), memory.value)
