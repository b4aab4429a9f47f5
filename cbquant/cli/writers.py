"""Arrays into .npy and .npz files, a piece at a time, under a temporary name until they are whole.

Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import os
import re
import secrets
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from cbquant.cli.arguments import CommandError
from cbquant.files._path import naming

#: Bytes of a file's name on the usual file systems (NAME_MAX); that of a file half written is far shorter.
MAX_FILE_NAME = 255

#: Bytes of a name in a zip archive: its length has 16 bits (https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT).
MAX_MEMBER_NAME = 0xFFFF


class Array(NamedTuple):
    """An array to write.

    Attributes
    ----------
    name, format : str
        The tensor's, as its file has them.
    shape, dtype
        The array's.
    pieces : callable
        Gives the values in C order, in 1-D arrays of `dtype`; each is valid until the next.
    """

    name: str
    format: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pieces: Callable[[], Iterable[NDArray[Any]]]


def key(name: str) -> str:
    """A tensor's name as one path component, whatever the name holds: the name of its file less ``.npy``.

    Letters, digits and ``. _ + -`` stay, every other byte becomes ``%XX``: two names never meet in one file. The
    dot of a ``.npy`` at the end does too: ``numpy.load(path)["a.npy"]`` is the array "a" where there is one.

    >>> key("blk.0.attn_q.weight"), key("../etc/passwd"), key("a.npy")
    ('blk.0.attn_q.weight', '..%2Fetc%2Fpasswd', 'a%2Enpy')
    """
    escaped = re.sub(r"[^\w.+-]", lambda match: quote(match[0], safe="", errors="surrogateescape"), name)
    return re.sub(r"\.npy\Z", "%2Enpy", escaped)


def check_length(name: str, what: str, limit: int = MAX_FILE_NAME) -> None:
    """Raise CommandError where `name` has more than `limit` bytes; `what` says in the error what it names."""
    size = len(name.encode("utf-8", "surrogateescape"))
    if size > limit:
        raise CommandError(f"{what} would have a name of {size:,} bytes, at most {limit:,} are possible")


def refuse_overwriting(paths: Iterable[Path], force: bool) -> None:
    """Raise CommandError where one of `paths` is a folder, or exists and `force` is not given."""
    for path in paths:
        if os.path.isdir(path) and not os.path.islink(path):
            raise CommandError(f"{path}: is a folder, expected a file or nothing")
        if not force and os.path.lexists(path):
            raise CommandError(f"{path}: exists already (--force overwrites)")


def write_npy(path: Path, array: Array) -> None:
    """Write one .npy file."""
    with _replacing(path) as stream:
        _write_array(stream, array)


def write_npz(path: Path, arrays: Iterable[Array]) -> None:
    """Write an uncompressed .npz file; ``numpy.load(path)[key(name)]`` gives an array back."""
    with _replacing(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for array in arrays:
            # The sizes are not known to zipfile beforehand, and may need 64 bits.
            with archive.open(key(array.name) + ".npy", "w", force_zip64=True) as member:
                _write_array(member, array)


def _write_array(stream: IO[bytes], array: Array) -> None:
    header = {
        "descr": np.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": False,
        "shape": array.shape,
    }
    np.lib.format.write_array_header_1_0(stream, header)
    for piece in array.pieces():
        stream.write(piece.view(np.uint8).data)


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A stream into a file beside `path` that takes its name at the end, and is gone after an error."""
    part = path.with_name(f".cbquant-{secrets.token_hex(8)}.part")
    try:
        with naming(path), part.open("xb") as stream:
            yield stream
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
