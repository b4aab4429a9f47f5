"""What a result says about the machine: no names and no paths, so that it can be published."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cbquant

# The average number of running processes of a minute: what a build leaves behind when it has ended a minute ago.
_IDLE = 0.7


def touched_memory(nbytes: int) -> NDArray[np.uint8]:
    """Memory that has been written before, from a 64-byte boundary on: a row of vectors that split cache lines would
    cost both sides a third of their speed, or not, as malloc pleases."""
    memory = np.ones(nbytes + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    return memory[begin : begin + nbytes]


def distribution_version(name: str) -> str | None:
    """The version of an installed package, by its name on PyPI; None where it is not installed.

    >>> distribution_version("no-such-package")
    """
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def notes() -> list[str]:
    """What speaks against measuring now: another process on the cores.

    ggml and BLAS wait for their threads by turning, and where one of them has no core all of them wait.
    """
    busy = os.getloadavg()[0]
    return [f"the machine was not idle before (load {busy:.1f}): do not trust this run"] if busy > _IDLE else []


def describe() -> dict[str, Any]:
    """The processor, the versions and the date, as JSON has it."""
    info = cbquant.info()
    return {
        "cpu": cpu_model(),
        "cores": _cores(),
        "isa": info["isa"],
        "kernels": info["kernels"],
        "last_cache_bytes": info["last_cache_bytes"],
        "system": f"{platform.system()} {platform.machine()}",
        "huge_pages": _huge_pages(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cbquant": info["version"],
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
    }


def cpu_model(cpuinfo: str | None = None) -> str:
    """The processor's name, with the numbers that tell what it is where the name does not.

    >>> cpu_model("model name : Xeon\\nvendor_id : GenuineIntel\\ncpu family : 6\\nmodel : 207\\n")
    'Xeon (GenuineIntel family 6 model 207)'
    >>> cpu_model("CPU implementer : 0x41\\nCPU part : 0xd40\\n")
    'AArch64 implementer 0x41 part 0xd40'
    """
    if cpuinfo is None:
        file = Path("/proc/cpuinfo")
        cpuinfo = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
    lines = re.findall(r"^([^:\n]+):(.*)$", cpuinfo, re.MULTILINE)
    fields = {key.strip(): value.strip() for key, value in lines}
    if "model name" in fields:
        keys = {"vendor_id": "", "cpu family": "family ", "model": "model ", "stepping": "stepping "}
        numbers = " ".join(label + fields[key] for key, label in keys.items() if key in fields)
        return f"{fields['model name']} ({numbers})" if numbers else fields["model name"]
    if "CPU part" in fields:
        return f"AArch64 implementer {fields.get('CPU implementer', '?')} part {fields['CPU part']}"
    return platform.processor() or platform.machine()


def _cores() -> int:
    """Cores that the affinity mask leaves."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _huge_pages() -> str:
    """Linux's setting, which decides what memory that was never touched costs: always, madvise or never."""
    file = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(\w+)\]", file.read_text(encoding="utf-8")) if file.exists() else None
    return chosen[1] if chosen else "unknown"
