"""Peers that may be missing, because they are gigabytes: torch and bitsandbytes."""

from __future__ import annotations

import ctypes
import importlib.util
import re
from pathlib import Path
from typing import Any

from benchmarks.machine import distribution_version
from benchmarks.report import Row

#: What needs what.
_NEEDS = {"ml_dtypes": ("ml_dtypes",), "torch": ("torch",), "bitsandbytes": ("torch", "bitsandbytes")}


def versions() -> dict[str, str]:
    """The peers that are installed."""
    found = {name: distribution_version(name) for name in _NEEDS}
    return {name: version for name, version in found.items() if version and _importable(name)}


def _importable(name: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in _NEEDS[name])


def notes() -> list[str]:
    """What is not compared with, for want of what."""
    return [f"no {name}: pip install {' '.join(_NEEDS[name])}" for name in _NEEDS if name not in versions()]


def missing(name: str) -> Row:
    """What a row says instead of figures where a peer is not installed."""
    return {"peer": name, "figure": None, "absent": "not installed", "judged": None}


def torch_with_one_thread() -> Any:
    """The module, told to use one thread."""
    import torch

    torch.set_num_threads(1)
    return torch


def one_thread_of_openmp() -> None:
    """Tell every OpenMP of this process to use one thread: bitsandbytes may have another one than torch."""
    maps = Path("/proc/self/maps")
    names = set(re.findall(r"\S*/lib[gi]?omp[^/\s]*\.so\S*", maps.read_text(encoding="utf-8")) if maps.exists() else ())
    for name in names:
        ctypes.CDLL(name).omp_set_num_threads(1)
