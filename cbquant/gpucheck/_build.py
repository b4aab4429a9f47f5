"""cbquant._cuda for the GPU that is here, where it is not there yet."""

from __future__ import annotations

import importlib.util
import os
import runpy
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cbquant.gpucheck._items import Context, Item, Wrong, checkout
from cbquant.gpucheck._probe import find_gpu
from cbquant.gpucheck._process import environment

#: Asked in a process of its own: this one may have loaded a module that is replaced.
WHY = "from cbquant import cuda; print(cuda.why_unavailable() or '')"


def items(context: Context) -> Iterator[Item]:
    yield Item("cbquant._cuda", partial(ready, context))


def load_build(root: Path) -> SimpleNamespace:
    """cuda/build.py."""
    return SimpleNamespace(**runpy.run_path(str(root / "cuda" / "build.py"), run_name="cuda_build"))


def ready(context: Context) -> dict[str, Any]:
    """Use the module that is there, or build it for this GPU's architecture; Wrong where neither can be."""
    gpu, why = find_gpu(), why_unavailable()
    facts = {"gpu": gpu.name, "capability": ".".join(map(str, gpu.capability)), "built": False}
    if not why:
        return facts
    root = checkout()
    if root is None:
        hint = f"in a checkout of the sources, CBQUANT_CUDA=1 CBQUANT_CUDA_ARCHS={gpu.arch} pip install . builds it"
        raise Wrong(f"{why}; {hint}")
    build_for(root, gpu.arch)
    if why := why_unavailable():
        raise Wrong(f"built for {gpu.arch}, but: {why}")
    return {**facts, "built": True, "arch": gpu.arch}


def why_unavailable() -> str:
    """What a fresh process says."""
    done = subprocess.run([sys.executable, "-c", WHY], capture_output=True, text=True, check=False, env=environment())
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    return done.stdout.strip()


def build_for(root: Path, arch: str) -> Path:
    """The module beside the package, for one architecture; a Wrong that says what is missing."""
    cuda = load_build(root)
    kept = root / "build" / "gpucheck"
    lists = runpy.run_path(str(root / "csrc" / "format_list.py"))["write_format_list"](kept).parent
    target = root / "cbquant" / f"_cuda{sysconfig.get_config_var('EXT_SUFFIX')}"
    try:
        cuda.build(cuda.find_toolkit(os.environ), (arch,), kept, lists, target)
    except cuda.BuildError as error:
        raise Wrong(f"cbquant._cuda cannot be built: {error}") from None
    importlib.invalidate_caches()
    if importlib.util.find_spec("cbquant._cuda") is None:
        raise Wrong(f"{target} was built, but is not found as cbquant._cuda")
    return target
