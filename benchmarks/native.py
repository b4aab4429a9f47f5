"""C sources of the benchmarks, compiled when they are needed."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_FOLDER = Path(__file__).parent


def compiled(source: str, *flags: str) -> tuple[ctypes.CDLL | None, str]:
    """The library made of a C file of this folder, and an empty reason; else None, and why there is none. `flags` are
    for the compiler.

    >>> library, reason = compiled("ceilings.c")
    >>> (library is None) == bool(reason)
    True
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None, "no C compiler (cc, or the environment variable CC)"
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "library.so"
        command = [compiler, "-O2", "-shared", "-fPIC", *flags, "-o", str(library), str(_FOLDER / source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            return None, lines[0]
        return ctypes.CDLL(str(library)), ""
