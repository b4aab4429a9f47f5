"""A file that is being written, and what of it is finished: so that a conversion can go on where it was stopped.

Beside the file to be, ``name``, stand ``.name.cbquant-part``, of its full size from the beginning, and
``.name.cbquant-state``: a line with a key (a digest of all that decides the bytes), then a line for each finished
piece, its number and the CRC-32 of its bytes. The pieces are read again before they are believed, so a machine
that lost its power may leave any of it on the disk. What lies between the pieces is zeros.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbquant.files._path import naming

_TITLE = b"cbquant-conversion 1 "
_LINE = re.compile(rb"([0-9]{1,18}) ([0-9a-f]{8})\n")
_READ = 1 << 24

#: What locking says where the file system has none.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


#: What linking says where the file system has no hard links.
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)


class Span(NamedTuple):
    """Where in the file a piece goes."""

    offset: int
    nbytes: int


def side_paths(path: Path) -> tuple[Path, Path]:
    """The unfinished file and its state, which stand beside `path` meanwhile."""
    return path.with_name(f".{path.name}.cbquant-part"), path.with_name(f".{path.name}.cbquant-state")


def check_replaceable(dst: Path, overwrite: bool) -> None:
    """Raise where something has the name `dst` that must not be replaced."""
    if dst.is_dir():
        raise IsADirectoryError(f"dst: {dst} is a folder")
    if dst.exists() and not dst.is_file():
        raise ValueError(f"dst: {dst} is no regular file, and is not replaced")
    if os.path.lexists(dst) and not overwrite:
        raise FileExistsError(f"dst: {dst} exists already; overwrite=True replaces it")


def _open(path: Path) -> int:
    """Open a side file, made where there is none: a regular file, and never what a link leads to."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "expected a regular file", str(path))
    return descriptor


class Partial:
    """The file that will be `path`, of `size` bytes, the first of them `head`, the others `spans` and zeros.

    `finished` holds the numbers of the pieces of `spans` that an earlier attempt with the same `key` has written.

    Raises
    ------
    OSError
        The files cannot be written, the disk has no room, or another conversion is writing them.
    """

    def __init__(self, path: Path, key: bytes, head: bytes, size: int, spans: Sequence[Span]) -> None:
        self._path, self._spans, self._size = path, spans, size
        self._part, self._state_path = side_paths(path)
        self._state = self._lock()
        self._data = -1
        try:
            title = _TITLE + key + b"\n"
            self._data = self._open_part()
            found = self._read_state(title) if os.fstat(self._data).st_size == size else {}
            self.finished = {number for number, crc in found.items() if self._crc(spans[number]) == crc}
            with naming(self._part):
                self._begin(title, head, found)
        except BaseException:
            self.close()
            raise

    def _lock(self) -> int:
        """Open the state, as the only one."""
        while True:
            state = _open(self._state_path)
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
            names = os.fstat(state).st_nlink
            if names == 1:
                return state
            os.close(state)
            if names:  # else the one that held the lock was done, and took the state away
                raise OSError(errno.EMLINK, "expected a file of one name, it has others", str(self._state_path))

    def _open_part(self) -> int:
        """Open the unfinished file; where it has another name too, as after a crash in `commit`, a new one."""
        descriptor = _open(self._part)
        if os.fstat(descriptor).st_nlink > 1:
            os.close(descriptor)
            os.unlink(self._part)
            descriptor = _open(self._part)
        return descriptor

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
        todo = (span.nbytes for number, span in enumerate(self._spans) if number not in self.finished)
        needed = len(head) + sum(todo)
        if needed > shutil.disk_usage(self._path.parent).free:
            if not self.finished:
                self.discard()
            raise OSError(errno.ENOSPC, f"no room for {needed} bytes", str(self._path))
        os.ftruncate(self._data, self._size)
        if self.finished:  # else it is new, and all zeros
            self._clear_gaps(len(head))
        self._write(memoryview(head), 0)
        lines = (self._line(number, found[number]) for number in sorted(self.finished))
        text = title + b"".join(lines)
        os.pwrite(self._state, text, 0)  # before it is cut: on a full disk no line is lost
        os.ftruncate(self._state, len(text))
        os.lseek(self._state, 0, os.SEEK_END)

    def _clear_gaps(self, begin: int) -> None:
        """Put zeros between the pieces, where there are none: holes in the file stay holes."""
        for span in (*sorted(self._spans), Span(self._size, 0)):
            for offset in range(begin, span.offset, _READ):
                data = os.pread(self._data, min(_READ, span.offset - offset), offset)
                if data.count(0) < len(data):
                    self._write(memoryview(bytes(len(data))), offset)
            begin = span.offset + span.nbytes

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
        with naming(self._part):
            self._write(view, span.offset)
        with naming(self._state_path):
            os.write(self._state, self._line(number, zlib.crc32(view)))

    def commit(self, overwrite: bool = False) -> None:
        """Give the file its name, once all its bytes are on the disk.

        Without `overwrite` a file that has got the name meanwhile stays: linking fails where there is one. File
        systems without hard links are asked right before, which leaves a moment.
        """
        with naming(self._part):
            os.fsync(self._data)
        check_replaceable(self._path, overwrite)
        if overwrite or not self._link():
            os.replace(self._part, self._path)
        os.unlink(self._state_path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _link(self) -> bool:
        """Move the file to its name unless something has it; False where the file system cannot."""
        try:
            os.link(self._part, self._path)
        except FileExistsError:
            check_replaceable(self._path, overwrite=False)
            raise
        except OSError as error:
            if error.errno in _NO_LINKS:
                return False
            raise
        os.unlink(self._part)
        return True

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
