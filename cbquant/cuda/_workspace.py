"""Memory that calls work in: one piece for each device and stream, which only grows."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cbquant.cuda import _stream
from cbquant.cuda._error import not_while_capturing
from cbquant.cuda._native import Memory, Native, Place

_ALIGNMENT = 256
_lock = threading.Lock()
_workspaces: dict[tuple[Native, int, int, int], Workspace] = {}


class Workspace:
    """That of one stream.

    A call holds the lock from its first kernel to its last: kernels of another thread in between would write over what
    the first one left for the second. From call to call the order of the stream sees to that.
    """

    def __init__(self, native: Native, device: int, stream: int) -> None:
        self.lock = threading.Lock()
        self._native, self._device, self._stream = native, device, stream
        self._memory: Memory | None = None
        # What graphs were captured with stays for good: they have the address, and run whenever they like.
        self._kept: list[Memory] = []
        self._is_captured = False

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes if self._memory else 0

    def at_least(self, nbytes: int, operation: str, is_capturing: bool) -> Memory | None:
        """The memory, grown where it is too small; with the lock held."""
        if nbytes > self.nbytes:
            if is_capturing:
                hint = f"{self.nbytes} bytes are reserved on this stream, {nbytes} are needed: "
                hint += "before the capture, call cbquant.cuda.reserve(w, m, stream=...) for it, or this function once"
                raise not_while_capturing(operation, hint)
            fresh = self._native.malloc(self._device, nbytes)
            if self._is_captured and self._memory:
                self._kept.append(self._memory)
            self._memory, self._is_captured = fresh, False
        self._is_captured = self._is_captured or is_capturing
        return self._memory


def of(native: Native, device: int, stream: int) -> Workspace:
    """The workspace of a stream. The per-thread default stream is another one in each thread."""
    key = (native, device, stream, threading.get_ident() if stream == _stream.PER_THREAD else 0)
    with _lock:
        return _workspaces.setdefault(key, Workspace(native, device, stream))


@contextmanager
def places(
    native: Native, device: int, stream: int, sizes: Sequence[int], operation: str, is_capturing: bool
) -> Iterator[list[Place]]:
    """A place of each size, for as long as the call gives kernels to the stream."""
    workspace = of(native, device, stream)
    with workspace.lock:
        memory = workspace.at_least(total(sizes), operation, is_capturing)
        found, offset = [], 0
        for size in sizes:
            if memory:
                found.append((memory, offset))
            offset += aligned(size)
        yield found


def aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def total(sizes: Sequence[int]) -> int:
    """The bytes that places of these sizes take."""
    return sum(map(aligned, sizes))
