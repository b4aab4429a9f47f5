"""Kernels, host code and the shim to one shared library, with the objects kept between runs."""

from __future__ import annotations

import hashlib
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.paths import ROOT

HERE = Path(__file__).resolve().parent
CACHE = ROOT / "build" / "shim"
#: Where kernels find their headers; the shim's are found before those of cuda/device.
KERNEL_INCLUDES = [HERE, ROOT / "cuda" / "device", ROOT / "csrc", CACHE]

WARNINGS = ["-Wall", "-Werror"]
COMMON = ["-fPIC", "-ffp-contract=off", "-pthread", *WARNINGS]
CXX = [*COMMON, "-std=gnu++17", "-U_FORTIFY_SOURCE"]  # longjmp to another stack is what a fortified one forbids
FLAGS = {
    ".c": [*COMMON, "-std=gnu11", "-O1"],
    ".cpp": [*CXX, "-O2"],
    ".cu": [
        *CXX,
        *("-x", "c++", "-O1"),
        *("-include", "cuda_runtime.h"),  # as nvcc does
        # Two copies of a call would be two instructions, at which lanes of a warp could not meet.
        "-fno-thread-jumps",
        # Bytes are read as wider words, as nvcc allows.
        "-fno-strict-aliasing",
        *("-Wno-unknown-pragmas", "-Wno-enum-compare", "-Wno-int-in-bool-context"),
        # Misaligned addresses and known arrays: faults.cpp has the functions that are called.
        "-fsanitize=alignment,bounds,object-size",
    ],
}


def why_not() -> str | None:
    """Why the shim cannot be built on this machine; None where it can."""
    if not sys.platform.startswith("linux"):
        return "the shim needs Linux (dl_iterate_phdr)"
    return None if shutil.which("g++") else "g++ not found: kernels are not run on the CPU"


def build(
    sources: Sequence[Path],
    includes: Sequence[Path] = (),
    flags: Sequence[str] = (),
    suffix: str = ".so",
    c_flags: Sequence[str] = (),
) -> Path:
    """The shared library of some sources and of the shim.

    Args:
        sources: files of C (.c), C++ (.cpp) and CUDA (.cu).
        includes: folders of headers, in order. For kernels: KERNEL_INCLUDES.
        flags: further flags, of all of `sources`.
        suffix: how the library's name ends: a Python extension has its own.
        c_flags: further flags, of the files of C alone.

    Raises:
        RuntimeError: the compiler failed; the message has its output.
    """
    runpy.run_path(str(ROOT / "csrc" / "format_list.py"))["write_format_list"](CACHE)
    own = [(path, [HERE], ()) for path in sorted(HERE.glob("*.cpp"))]
    theirs = [(path, includes, (*flags, *(c_flags if path.suffix == ".c" else ()))) for path in sources]
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        objects = list(workers.map(lambda work: _compile(*work), [*theirs, *own]))
    digest = hashlib.sha256("\0".join(path.name for path in objects).encode()).hexdigest()[:16]
    library = CACHE / f"{Path(sources[0]).stem}-{digest}{suffix}"
    if not library.exists():
        # Bsymbolic: CUDA's own runtime may be in the process too, with functions of the same names.
        flags = ["-shared", "-pthread", "-Wl,-Bsymbolic", *(["-Wl,-z,defs"] if suffix == ".so" else [])]
        _run_to(library, ["g++", *flags, *map(str, objects), "-ldl"])
    return library


def _compile(source: Path, includes: Sequence[Path], flags: Sequence[str]) -> Path:
    """The object of a source; its name has a hash of everything that it was made of."""
    suffix = source.suffix
    command = ["gcc" if suffix == ".c" else "g++", *FLAGS[suffix], *flags, *(f"-I{_short(path)}" for path in includes)]
    key = hashlib.sha256("\0".join([*command, str(source)]).encode()).hexdigest()[:12]
    listed = CACHE / f"{source.stem}-{key}.d"  # the files that it was made of, as the compiler lists them
    kept = _object_of(listed)
    if kept is None or not kept.exists():
        _run_to(listed, [*command, "-M", _short(source)])
        kept = _object_of(listed)
        if kept is None:
            raise RuntimeError(f"{source}: a header vanished while it was compiled")
        _run_to(kept, [*command, "-c", _short(source)])
    return kept


def _object_of(listed: Path) -> Path | None:
    if not listed.exists():
        return None
    digest = hashlib.sha256(_version().encode())
    for name in listed.read_text().replace("\\\n", " ").split()[1:]:
        try:
            digest.update((ROOT / name).read_bytes())
        except FileNotFoundError:
            return None  # a header that is no more: the list is stale
    return listed.with_name(f"{listed.stem}-{digest.hexdigest()[:12]}.o")


def _short(path: Path) -> str:
    """The path as messages show it: below the repository, where the compiler runs."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _run_to(target: Path, command: list[str]) -> None:
    """Run a compiler; its output is there whole or not at all, also for tests that run beside this one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(f".{os.getpid()}")
    # A sanitizer that is preloaded for the extension is not for the compiler.
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run([*command, "-o", str(fresh)], cwd=ROOT, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    os.replace(fresh, target)


def _version() -> str:
    return f"{shutil.which('g++')} {os.stat(str(shutil.which('g++'))).st_mtime_ns}"
