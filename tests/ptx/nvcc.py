"""Compiling CUDA sources to PTX, for tests that interpret it, and on to machine code, for those that look at it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path


def find_nvcc() -> str | None:
    """nvcc from PATH, or below CUDA_HOME; None where there is none."""
    found = shutil.which("nvcc")
    if found is None and "CUDA_HOME" in os.environ:
        found = shutil.which("nvcc", path=str(Path(os.environ["CUDA_HOME"]) / "bin"))
    return found


def compile_ptx(
    source_path: Path | str,
    arch: str,
    include_dirs: Sequence[Path | str] = (),
    defines: Sequence[str] = (),
    extra: Sequence[str] = (),
    *,
    cache_dir: Path | str,
) -> str:
    """The PTX that nvcc makes of a source.

    Args:
        arch: "sm_80", ...
        defines: "NAME" or "NAME=value".
        extra: further flags: decode needs "-fmad=false".
        cache_dir: where results are kept, by a hash of the preprocessed source, the flags and nvcc's version.

    Raises:
        FileNotFoundError: there is no nvcc.
        RuntimeError: it failed; the message has its output.
    """
    return make_ptx(source_path, arch, include_dirs, defines, extra, cache_dir=cache_dir).read_text()


def make_ptx(
    source_path: Path | str,
    arch: str,
    include_dirs: Sequence[Path | str] = (),
    defines: Sequence[str] = (),
    extra: Sequence[str] = (),
    *,
    cache_dir: Path | str,
) -> Path:
    """The file that `compile_ptx` reads."""
    flags = [f"-arch={arch}", *(f"-I{d}" for d in include_dirs), *(f"-D{d}" for d in defines), *extra]
    # -P: without line markers, so that the place of a checkout does not count
    preprocessed = _run(_nvcc(), [*flags, "-E", "-Xcompiler=-P", str(source_path)])
    key = _digest(*flags, preprocessed)
    return _make([*flags, "-ptx", str(source_path)], Path(cache_dir) / f"{Path(source_path).stem}-{arch}-{key}.ptx")


def make_cubin(ptx: Path, arch: str, extra: Sequence[str] = ()) -> Path:
    """The machine code that ptxas makes of a file of `make_ptx`, kept beside it: the second half of nvcc's work, so
    that tests of both compile once."""
    key = _digest(arch, *extra, ptx.read_text())
    return _make([f"-arch={arch}", *extra, "-cubin", str(ptx)], ptx.parent / f"{ptx.stem[:-25]}-{key}.cubin")


def nvcc_release() -> str:
    """As in "13.0.88"."""
    match = re.search(r"V(\d+\.\d+\.\d+)", _version(_nvcc()))
    if match is None:
        raise RuntimeError(f"nvcc --version names no release:\n{_version(_nvcc())}")
    return match[1]


def _make(arguments: list[str], kept: Path) -> Path:
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        fresh = kept.with_suffix(f".{os.getpid()}")
        _run(_nvcc(), [*arguments, "-o", str(fresh)])
        os.replace(fresh, kept)  # whole or not at all, also for tests that run beside this one
    return kept


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join([_version(_nvcc()), *parts]).encode()).hexdigest()[:24]


def _nvcc() -> str:
    nvcc = find_nvcc()
    if nvcc is None:
        raise FileNotFoundError("nvcc not found")
    return nvcc


@cache
def _version(nvcc: str) -> str:
    return _run(nvcc, ["--version"])


def _run(nvcc: str, arguments: list[str]) -> str:
    # A sanitizer that is preloaded for the extension is not for the compiler, which crashes under it.
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run([nvcc, *arguments], capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise RuntimeError(f"{' '.join([nvcc, *arguments])}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout
