"""The fastest ways to write and to copy memory with several threads: what is measured against."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.native import compiled
from benchmarks.timing import Call

# Some processors and hypervisors have a short cut for zeros.
_BYTE = 0x3F
_VALUE = np.float32(0.75)


class Crew:
    """Threads that do their parts of a job at the same time, the caller's thread among them.

    They wait between jobs as the threads of cbquant do. What they call has to let go of the GIL: functions
    called through ctypes do, and so does ``ndarray.fill`` for more than 500 elements.

    >>> crew, done = Crew(2), []
    >>> crew.run([lambda: done.append("mine"), lambda: done.append("the other's")])
    >>> sorted(done)
    ['mine', "the other's"]
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._jobs: list[SimpleQueue[Call]] = [SimpleQueue() for _ in range(threads - 1)]
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        for jobs in self._jobs:
            threading.Thread(target=self._work, args=(jobs,), daemon=True).start()

    def _work(self, jobs: SimpleQueue[Call]) -> None:
        while True:
            try:
                jobs.get()()
                self._done.put(None)
            except BaseException as error:
                self._done.put(error)

    def run(self, parts: Sequence[Call]) -> None:
        """Make the calls, one a thread, and return when all have returned; an error of one of them is raised."""
        for jobs, part in zip(self._jobs, parts[1:], strict=True):
            jobs.put(part)
        parts[0]()
        for error in [self._done.get() for _ in self._jobs]:
            if error is not None:
                raise error

    def together(self, parts: Sequence[Call]) -> Call:
        """One call that makes all of them."""
        return parts[0] if self.threads == 1 else functools.partial(self.run, parts)


def cache_fills(out: NDArray[Any]) -> dict[str, list[Call]]:
    """Candidates that fill an array that fits a cache, on one thread: ``ndarray.fill`` and memset.

    Parameters
    ----------
    out : ndarray
        Contiguous, of any type; its bytes are a multiple of 4.
    """
    words = out.reshape(-1).view(np.float32)
    return {"fill": [_fill(words)], "memset": [_memset(words)]}


def memory_fills(out: NDArray[Any], crew: Crew) -> dict[str, list[Call]]:
    """Candidates that fill an array in memory with the threads of `crew`, each its part: ``ndarray.fill``, memset
    and, where they could be compiled, streaming stores. `out` is as for `cache_fills`."""
    parts = np.array_split(out.reshape(-1).view(np.float32), crew.threads)
    fills = {
        "fill": [crew.together([_fill(part) for part in parts])],
        "memset": [crew.together([_memset(part) for part in parts])],
    }
    stream_fill, _ = load_stream_fill()
    if stream_fill is not None:
        calls = [functools.partial(stream_fill, part.ctypes.data, _BYTE, part.nbytes) for part in parts]
        fills["stream"] = [crew.together(calls)]
    return fills


def memory_copies(source: NDArray[Any], out: NDArray[Any], crew: Crew) -> dict[str, list[Call]]:
    """Candidates that copy an array in memory with the threads of `crew`, each its part: memcpy and, where they could
    be compiled, streaming stores. Both are contiguous and of as many bytes."""
    pieces = (np.array_split(array.reshape(-1).view(np.uint8), crew.threads) for array in (out, source))
    places = [(to.ctypes.data, part.ctypes.data, to.nbytes) for to, part in zip(*pieces, strict=True)]
    copies = {"memcpy": [crew.together([functools.partial(ctypes.memmove, *place) for place in places])]}
    stream_copy, _ = load_stream_copy()
    if stream_copy is not None:
        copies["stream"] = [crew.together([functools.partial(stream_copy, *place) for place in places])]
    return copies


def fresh_fill(elements: int, crew: Crew) -> Call:
    """A call that allocates float32 ``[elements]``, fills it with the threads of `crew` and returns it."""

    def allocate_and_fill() -> NDArray[np.float32]:
        out = np.empty(elements, np.float32)
        crew.together([_fill(part) for part in np.array_split(out, crew.threads)])()
        return out

    return allocate_and_fill


def scale(element_bytes: int, stored_bytes: float) -> float:
    """The part of a fill's speed that is left where memory also has to deliver the blocks: for an element of
    `element_bytes` written, `stored_bytes` are read, taken to be as fast.

    >>> scale(4, 0.5625)  # q4_0 to float32
    0.8767123287671232
    """
    return element_bytes / (element_bytes + stored_bytes)


def _fill(part: NDArray[np.float32]) -> Call:
    return functools.partial(part.fill, _VALUE)


def _memset(part: NDArray[np.float32]) -> Call:
    return functools.partial(ctypes.memset, part.ctypes.data, _BYTE, part.nbytes)


@functools.cache
def load_stream_fill() -> tuple[Any, str]:
    """``stream_fill(address, byte, bytes)`` of ceilings.c, compiled now, and how; else None, and why not."""
    library, reason = compiled("ceilings.c")
    if library is None:
        return None, f"streaming stores were not measured: {reason}"
    stream_fill = library.stream_fill
    stream_fill.argtypes = (ctypes.c_void_p, ctypes.c_uint8, ctypes.c_size_t)
    stream_fill.restype = None
    return stream_fill, "streaming stores of benchmarks/ceilings.c"


@functools.cache
def load_stream_copy() -> tuple[Any, str]:
    """``stream_copy(to, from, bytes)`` of ceilings.c, compiled now, and how; else None, and why not."""
    library, reason = compiled("ceilings.c")
    if library is None:
        return None, f"streaming copies were not measured: {reason}"
    stream_copy = library.stream_copy
    stream_copy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    stream_copy.restype = None
    return stream_copy, "streaming stores of benchmarks/ceilings.c"
