"""What a core can do at most: read memory, multiply and add floats, multiply and add bytes. Products are measured
against it."""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Mapping
from typing import Any, NamedTuple

import cbquant
from benchmarks.ceilings import Crew
from benchmarks.machine import touched_memory
from benchmarks.native import compiled
from benchmarks.timing import Call

# Rounds of a call: about a millisecond.
_ROUNDS = 200_000
_CHUNK = 64 << 20
# read_memory takes so many bytes at a time.
_LINES = 256
# Where the size of the last cache is not known.
_USUAL_LAST_CACHE = 64 << 20
# How far ahead to ask for a line, in bytes: not at all, or by distances of which now one and now the other was best.
_AHEAD = (0, 2048, 4096)

#: The functions of peaks.c for each level of `cbquant.info`: what the instructions of the level can do at most. Scalar
#: code has none.
FLOATS = {
    **dict.fromkeys(("avx2", "avxvnni"), ("fma_avx2",)),
    **dict.fromkeys(("avx512", "avx512vnni", "avx512bf16"), ("fma_avx512",)),
    **dict.fromkeys(("neon", "neon_dotprod", "neon_i8mm", "neon_bf16"), ("fma_neon",)),
}
INTEGERS = {
    "avx2": ("nibbles_avx2",),
    "avxvnni": ("nibbles_avx2", "dot_avxvnni"),
    "avx512": ("nibbles_avx512",),
    **dict.fromkeys(("avx512vnni", "avx512bf16"), ("nibbles_avx512", "dot_avx512vnni")),
    "neon": ("long_neon",),
    "neon_dotprod": ("dot_neon",),
    **dict.fromkeys(("neon_i8mm", "neon_bf16"), ("dot_neon", "matrix_neon")),
}


class Peak(NamedTuple):
    """A way to reach a limit."""

    #: of one call: operations, of which a multiply-add is two, or bytes read
    work: float
    call: Call


@functools.cache
def load_peaks() -> tuple[Any, str]:
    """peaks.c, compiled now, and what it is; else None, and why not."""
    flags = ["-march=armv8.2-a+dotprod+i8mm"] if platform.machine() in ("aarch64", "arm64") else []
    library, reason = compiled("peaks.c", *flags)
    if library is None:
        return None, f"the machine's limits were not measured: {reason}"
    library.read_memory.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
    library.read_memory.restype = ctypes.c_uint64
    return library, "limits of benchmarks/peaks.c"


def arithmetic(functions: Mapping[str, tuple[str, ...]], level: str, crew: Crew) -> dict[str, Peak]:
    """The functions of `FLOATS` or `INTEGERS` for a level, run by each thread of `crew` at the same time.

    >>> arithmetic(INTEGERS, "scalar", Crew(1))
    {}
    """
    library, _ = load_peaks()
    if library is None:
        return {}
    found = {}
    for name in functions.get(level, ()):
        function = getattr(library, name)
        function.argtypes, function.restype = (ctypes.c_int64,), ctypes.c_double
        calls = [functools.partial(function, _ROUNDS)] * crew.threads
        found[name] = Peak(function(1) * _ROUNDS * crew.threads, crew.together(calls))
    return found


class Memory:
    """Memory to read from, more than twice the last cache, a chunk after the other.

    Parameters
    ----------
    last_cache : int, optional
        Bytes; the default is what cbquant knows about this machine.
    """

    def __init__(self, last_cache: int | None = None) -> None:
        size = cbquant.info()["last_cache_bytes"] if last_cache is None else last_cache
        self._chunk = min(_CHUNK, 2 * (size or _USUAL_LAST_CACHE))
        self._memory = touched_memory((2 * (size or _USUAL_LAST_CACHE) // self._chunk + 1) * self._chunk)
        self._begin = 0

    def reads(self, crew: Crew) -> dict[str, Peak]:
        """Ways to read a chunk, each thread of `crew` its part of it."""
        library, _ = load_peaks()
        if library is None:
            return {}
        part = self._chunk // crew.threads // _LINES * _LINES

        def read(ahead: int) -> None:
            self._begin = (self._begin + self._chunk) % self._memory.nbytes
            first = self._memory.ctypes.data + self._begin
            begins = [first + thread * part for thread in range(crew.threads)]
            crew.together([functools.partial(library.read_memory, begin, part, ahead) for begin in begins])()

        return {f"{ahead} ahead": Peak(part * crew.threads, functools.partial(read, ahead)) for ahead in _AHEAD}
