"""Kernels of cuda/ as nvcc compiles them, for the interpreter."""

from __future__ import annotations

import gc
import runpy
from functools import cache
from pathlib import Path

from tests import ptx
from tests.paths import ROOT
from tests.ptx.nvcc import make_ptx

ARCHITECTURES = ("sm_80", "sm_90a")
FLAGS = ["-std=c++17", "-O3", "-fmad=false", "-Werror=all-warnings"]


@cache
def load_kernels(name: str, architecture: str, folder: str = "kernels") -> ptx.Loaded:
    """cuda/FOLDER/NAME.cu, read once: that takes seconds.

    It is some million objects that stay. They are taken out of the garbage collector's sight, which would look at all
    of them each time.
    """
    text = kernels_ptx(ROOT / "cuda" / folder / f"{name}.cu", architecture).read_text()
    gc.disable()
    try:
        return ptx.load(text)
    finally:
        gc.freeze()
        gc.enable()


def kernels_ptx(source: Path, architecture: str) -> Path:
    """The PTX of a source that includes the headers of cuda/device, as the build compiles it."""
    cache = ROOT / "build" / "ptx"
    runpy.run_path(str(ROOT / "csrc" / "format_list.py"))["write_format_list"](cache)
    includes = [ROOT / "cuda" / "device", ROOT / "csrc", cache]
    return make_ptx(source, architecture, includes, extra=FLAGS, cache_dir=cache)
