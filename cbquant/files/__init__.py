"""Model files as read-only mappings from tensor names to memory-mapped tensors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cbquant.files import gguf
from cbquant.files._file import File, TensorInfo, map_file
from cbquant.files._metadata import GGUFError, Metadata

__all__ = ["File", "GGUFError", "Metadata", "TensorInfo", "open"]

#: What the files of each container begin with, and the function that reads them, given a path and its bytes.
_READERS: dict[bytes, Callable[[Path, NDArray[np.uint8]], File]] = {gguf.MAGIC: gguf.read}


def open(path: str | os.PathLike[str]) -> File:
    """Open a model file without reading its tensors: they are views of the memory-mapped file.

    The container is recognised by its first bytes, not by its name. GGUF: versions 2 and 3, little-endian
    (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).

    Parameters
    ----------
    path : str or os.PathLike
        A regular file. Any shard, ``name-00002-of-00003.gguf``, opens the whole model. Do not truncate a file
        while it is mapped: to read a page that is gone kills the process (SIGBUS), and no exception can be
        raised. Replace it instead: write another file and rename it.

    Returns
    -------
    File
        A read-only mapping from names to tensors. f32, f16, f64 and integers are read-only ndarrays; bf16 and
        block formats are `QuantTensor`; so is a type that cbquant does not know, which is listed but cannot
        be decoded. NumPy shapes are the reverse of GGUF's dimensions.

    Raises
    ------
    OSError
        The file, or one of its shards, cannot be opened or is no regular file (a FIFO, a device).
    ValueError
        First bytes that are not known; shards that do not belong together.
    GGUFError
        A ValueError with path and position: the file is cut, contradicts itself or uses what is not read.

    Examples
    --------
    >>> import pathlib, struct, tempfile, cbquant
    >>> header = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)  # version 3, one tensor, no metadata
    >>> info = struct.pack("<Q1sIQQIQ", 1, b"w", 2, 3, 2, 0, 0)  # two dimensions, 3 and 2; f32; at offset 0
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "tiny.gguf")
    ...     _ = path.write_bytes((header + info).ljust(96, bytes(1)) + struct.pack("<6f", *range(6)))
    ...     with cbquant.open(path) as file:
    ...         print(list(file), file["w"].tolist())
    ['w'] [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    """
    path = Path(path)
    data = map_file(path)
    head = data[: max(map(len, _READERS))].tobytes()
    for magic, read in _READERS.items():
        if head.startswith(magic):
            return read(path, data)
    known = ", ".join(map(repr, _READERS))
    found = repr(head) if head else "an empty file"
    raise ValueError(f"{path}: expected a file that begins with {known}, got {found}")
