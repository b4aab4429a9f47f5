"""cbquant._cuda, built with the shim in place of CUDA: what tests put into cbquant.cuda's hands."""

from __future__ import annotations

import importlib.util
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from cbquant.cuda import _driver, _workspace
from tests.cuda.shim import KERNEL_INCLUDES, Shim, build
from tests.paths import ROOT

#: The C files of the module; registry.c is the list of formats.
HOST = [*sorted((ROOT / "cuda" / "host").glob("*.c")), ROOT / "csrc" / "registry.c"]
ARCHITECTURES = "sm_80 compute_80"


@cache
def build_module() -> Path | Exception:
    """The module's file. A build that fails is remembered: every test would try it again."""
    kernels = sorted((ROOT / "cuda").glob("*/*.cu"))
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    # Of C files alone, so that tests of kernels share the objects of those.
    c_flags = [f'-DCBQ_CUDA_ARCHS="{ARCHITECTURES}"', f"-isystem{sysconfig.get_path('include')}"]
    try:
        return build([*HOST, *kernels], KERNEL_INCLUDES, suffix=suffix, c_flags=c_flags)
    except RuntimeError as error:
        return error


@cache
def load_module() -> tuple[Any, Shim]:
    """The module, and what tests ask of the shim inside it."""
    path = build_module()
    if isinstance(path, Exception):
        raise path
    spec = importlib.util.spec_from_file_location("cbquant._cuda", path)
    module: ModuleType = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module, Shim(path)


@contextmanager
def in_use() -> Iterator[tuple[Any, Shim]]:
    """cbquant.cuda works with the module of the shim; its workspaces go at the end."""
    module, shim = load_module()
    before = _driver._native
    _driver._native = module
    try:
        yield module, shim
    finally:
        _driver._native = before
        for key in [key for key in _workspace._workspaces if key[0] is module]:
            del _workspace._workspaces[key]
        shim.library.cudaGetLastError()
