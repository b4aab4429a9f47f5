"""Model files as read-only mappings from tensor names to memory-mapped tensors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cbquant.files import gguf, safetensors
from cbquant.files._file import File, TensorInfo, map_file
from cbquant.files._metadata import GGUFError, Metadata

__all__ = ["File", "GGUFError", "Metadata", "TensorInfo", "open"]

_Reader = Callable[[Path, NDArray[np.uint8]], File]

#: Whether a container begins with these bytes, and the function that reads it, given a path and its bytes.
_READERS: tuple[tuple[Callable[[bytes], bool], _Reader], ...] = (
    (gguf.recognises, gguf.read),
    (safetensors.recognises, safetensors.read),
    (safetensors.recognises_index, safetensors.read_index),
)

#: Bytes that tell a container; an index may begin with white space.
_HEAD = 64


def open(path: str | os.PathLike[str]) -> File:
    """Open a model file without reading its tensors: they are views of the memory-mapped file.

    The container is recognised by its first bytes, not by its name. GGUF: versions 2 and 3, little-endian
    (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). safetensors
    (https://github.com/huggingface/safetensors), and the index of a sharded model of it.

    Parameters
    ----------
    path : str or os.PathLike
        A regular file. Any shard, ``name-00002-of-00003.gguf`` or ``.safetensors``, opens the whole model, as
        does the index, ``model.safetensors.index.json``, which may give the files any names. Do not truncate a file
        while it is mapped: to read a page that is gone kills the process (SIGBUS), and no exception can be
        raised. Replace it instead: write another file and rename it.

    Returns
    -------
    File
        A read-only mapping from names to tensors. f32, f16, f64, integers and bools are read-only ndarrays;
        bf16 and block formats are `QuantTensor`; so is a type that cbquant does not know (of safetensors: FP8,
        FP6, FP4 and complex numbers), which is listed but cannot be decoded. NumPy shapes are the reverse of
        GGUF's dimensions, and those of safetensors as they are.

    Raises
    ------
    OSError
        The file, or one of its shards, cannot be opened or is no regular file (a FIFO, a device).
    ValueError
        First bytes that are not known; shards that do not belong together; a safetensors file that is cut or
        contradicts itself.
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
    head = data[:_HEAD].tobytes()
    for recognises, read in _READERS:
        if recognises(head):
            return read(path, data)
    found = repr(head[:16]) if head else "an empty file"
    expected = f"a file that begins with {gguf.MAGIC!r}, or one of safetensors or its index"
    raise ValueError(f"{path}: expected {expected}, got {found}")
