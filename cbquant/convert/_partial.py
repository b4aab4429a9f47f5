"""A file that is being written, and what of it is finished: so that a conversion can go on where it was stopped.

Beside the file to be, ``name``, stand ``.name.cbquant-part``, of its full size from the beginning, and
``.name.cbquant-state``: a line with a key (a digest of all that decides the bytes), then a line for each finished
piece, its number and the CRC-32 of its bytes. The pieces are read again before they are believed, so a machine
that lost its power may leave any of it on the disk.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_TITLE = b"cbquant-conversion 1 "
_LINE = re.compile(rb"([0-9]{1,18}) ([0-9a-f]{8})\n")
_READ = 1 << 24

#: What locking says where the file system has none.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class Span(NamedTuple):
    """Where in the file a piece goes."""

    offset: int
    nbytes: int


class Partial:
    """The file that will be `path`, of `size` bytes, the first of them `head`.

    `finished` holds the numbers of the pieces of `spans` that an earlier attempt with the same `key` has written.

    Raises
    ------
    OSError
        The files cannot be written, the disk has no room, or another conversion is writing them.
    """

    def __init__(self, path: Path, key: bytes, head: bytes, size: int, spans: Sequence[Span]) -> None:
        self._path, self._spans, self._size = path, spans, size
        self._part = path.with_name(f".{path.name}.cbquant-part")
        self._state_path = path.with_name(f".{path.name}.cbquant-state")
        self._state = self._lock()
        self._data = -1
        try:
            title = _TITLE + key + b"\n"
            self._data = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            found = self._read_state(title) if os.fstat(self._data).st_size == size else {}
            self.finished = {number for number, crc in found.items() if self._crc(spans[number]) == crc}
            self._begin(title, head, found)
        except BaseException:
            self.close()
            raise

    def _lock(self) -> int:
        """Open the state, as the only one."""
        while True:
            state = os.open(self._state_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(state, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(state)
                reason = "another conversion is writing this file"
                raise BlockingIOError(errno.EWOULDBLOCK, reason, str(self._path)) from None
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    os.close(state)
                    raise
            if os.fstat(state).st_nlink:  # else the one that held the lock was done, and took the state away
                return state
            os.close(state)

    def _read_state(self, title: bytes) -> dict[int, int]:
        """Numbers and checksums; of lines behind a broken one nothing is known."""
        with os.fdopen(os.dup(self._state), "rb") as stream:
            stream.seek(0)
            if stream.readline(len(title) + 1) != title:
                return {}
            found: dict[int, int] = {}
            for line in stream:
                match = _LINE.fullmatch(line)
                if match is None or int(match[1]) >= len(self._spans):
                    break
                found[int(match[1])] = int(match[2], 16)
            return found

    def _crc(self, span: Span) -> int:
        crc = 0
        for begin in range(0, span.nbytes, _READ):
            crc = zlib.crc32(os.pread(self._data, min(_READ, span.nbytes - begin), span.offset + begin), crc)
        return crc

    def _begin(self, title: bytes, head: bytes, found: dict[int, int]) -> None:
        if not self.finished:
            os.ftruncate(self._data, 0)
        needed = self._size - sum(self._spans[number].nbytes for number in self.finished)
        if needed > shutil.disk_usage(self._path.parent).free:
            self.discard()
            raise OSError(errno.ENOSPC, f"no room for {needed} bytes", str(self._path))
        os.ftruncate(self._data, self._size)
        self._write(memoryview(head), 0)
        lines = (self._line(number, found[number]) for number in sorted(self.finished))
        os.ftruncate(self._state, 0)
        os.pwrite(self._state, title + b"".join(lines), 0)
        os.lseek(self._state, 0, os.SEEK_END)

    @staticmethod
    def _line(number: int, crc: int) -> bytes:
        return b"%d %08x\n" % (number, crc)

    def _write(self, view: memoryview, offset: int) -> None:
        while view.nbytes:
            count = os.pwrite(self._data, view, offset)
            view, offset = view[count:], offset + count

    def write(self, number: int, data: NDArray[np.uint8]) -> None:
        """Write a piece, uint8 [bytes], and remember that it is finished."""
        span = self._spans[number]
        if data.shape != (span.nbytes,):
            raise ValueError(f"piece {number}: expected {span.nbytes} bytes, got an array of shape {data.shape}")
        view = np.ascontiguousarray(data).data
        self._write(view, span.offset)
        os.write(self._state, self._line(number, zlib.crc32(view)))

    def commit(self) -> None:
        """Give the file its name, once all its bytes are on the disk."""
        os.fsync(self._data)
        os.replace(self._part, self._path)
        os.unlink(self._state_path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def discard(self) -> None:
        """Take both files away."""
        for path in (self._part, self._state_path):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let the files go, for another attempt. Closing twice is allowed."""
        for descriptor in (self._data, self._state):
            if descriptor >= 0:
                os.close(descriptor)
        self._data = self._state = -1
