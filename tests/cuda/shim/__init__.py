"""CUDA kernels compiled by g++ and run on the CPU, one fiber a CUDA thread (see README.md)."""

from __future__ import annotations

from .build import KERNEL_INCLUDES, build, why_not
from .library import Shim, ShimError

__all__ = ["KERNEL_INCLUDES", "Shim", "ShimError", "build", "why_not"]
