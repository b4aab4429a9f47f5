"""Decoding and products on NVIDIA GPUs. Not yet run on a GPU: docs/cuda.md says how it was tested.

>>> import cbquant
>>> cbquant.cuda.is_available() or isinstance(cbquant.cuda.why_unavailable(), str)
True

`load` copies a tensor to a GPU, as a `Weight` in its own format; `dequant`, `matmul` and `moe_matmul` work with it.
ndarrays give ndarrays, arrays of torch, CuPy and JAX give theirs, on the stream that is named or that their library
works on. `deepseek` has the operators of DeepSeek-V4. Nothing here falls back to the CPU.

Importing this does not touch the driver.
"""

from __future__ import annotations

from cbquant.cuda import deepseek
from cbquant.cuda._array import DeviceArray
from cbquant.cuda._dequant import dequant
from cbquant.cuda._device import device_info, last_kernel
from cbquant.cuda._driver import is_available, why_unavailable
from cbquant.cuda._error import CudaError
from cbquant.cuda._products import matmul, moe_matmul
from cbquant.cuda._weight import Weight, load, reserve

__all__ = [
    "CudaError",
    "DeviceArray",
    "Weight",
    "deepseek",
    "dequant",
    "device_info",
    "is_available",
    "last_kernel",
    "load",
    "matmul",
    "moe_matmul",
    "reserve",
    "why_unavailable",
]
