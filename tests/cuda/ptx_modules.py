"""cuda/kernels as nvcc compiles them, for the interpreter."""

from __future__ import annotations

import runpy

from tests import ptx
from tests.paths import ROOT
from tests.ptx.nvcc import compile_ptx

ARCHITECTURES = ("sm_80", "sm_90a")
FLAGS = ["-std=c++17", "-O3", "-fmad=false", "-Werror=all-warnings"]


def load_kernels(name: str, architecture: str, folder: str = "kernels") -> ptx.Loaded:
    """cuda/FOLDER/NAME.cu."""
    cache = ROOT / "build" / "ptx"
    runpy.run_path(str(ROOT / "csrc" / "format_list.py"))["write_format_list"](cache)
    includes = [ROOT / "cuda" / "device", ROOT / "csrc", cache]
    source = ROOT / "cuda" / folder / f"{name}.cu"
    return ptx.load(compile_ptx(source, architecture, includes, extra=FLAGS, cache_dir=cache))
