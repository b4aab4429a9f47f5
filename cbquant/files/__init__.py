"""Model files as read-only mappings from tensor names to memory-mapped tensors."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbquant.files import gguf, safetensors
from cbquant.files._file import File, Stored, map_file
from cbquant.files._info import TensorInfo
from cbquant.files._metadata import GGUFError, Metadata
from cbquant.files._path import as_path
from cbquant.files.conventions import Options
from cbquant.files.conventions._recipe import Tile

__all__ = ["File", "GGUFError", "Metadata", "Stored", "TensorInfo", "open"]

_Reader = Callable[[Path, NDArray[np.uint8], Options], File]

#: Whether a container begins with these bytes, and the function that reads it, given a path, its bytes and options.
_READERS: tuple[tuple[Callable[[bytes], bool], _Reader], ...] = (
    (gguf.recognises, gguf.read),
    (safetensors.recognises, safetensors.read),
    (safetensors.recognises_index, safetensors.read_index),
)

#: Bytes that tell a container; an index may begin with white space.
_HEAD = 64


def open(path: str | os.PathLike[str], *, tile: Tile = (128, 128), unscaled_fp8: bool = False) -> File:
    """Open a model file without reading its tensors: they are views of the memory-mapped file.

    The container is recognised by its first bytes, not by its name. GGUF: versions 2 and 3, little-endian
    (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). safetensors
    (https://github.com/huggingface/safetensors), and the index of a sharded model of it. Of safetensors a quantized
    weight whose codes and scales are tensors of their own is one tensor, where the names, dtypes and shapes are those
    of DeepSeek V3 and V4, gpt-oss, compressed-tensors, ModelOpt or bitsandbytes: docs/files.md has the list.

    Parameters
    ----------
    path : str or os.PathLike
        A regular file. Any shard, ``name-00002-of-00003.gguf`` or ``.safetensors``, opens the whole model, as
        does the index, ``model.safetensors.index.json``, which may give the files any names. Do not truncate a file
        while it is mapped: to read a page that is gone kills the process (SIGBUS), and no exception can be
        raised. Replace it instead: write another file and rename it.
    tile : (int or None, int or None)
        Of safetensors: rows and columns under one scale where FP8 has tiles, which no file tells; None is all of
        them. DeepSeek V4.1 has (32, 32).
    unscaled_fp8 : bool
        Of safetensors: take FP8 that has no scales for numbers. Else it is listed but cannot be decoded: its scales
        may be lost, or have names that are not known.

    Returns
    -------
    File
        A read-only mapping from names to tensors. f32, f16, f64, integers and bools are read-only ndarrays;
        bf16, block formats and codes beside scales are `QuantTensor`; so is a type that cbquant does not know (of
        safetensors: FP8 without scales, FP6, FP4 and complex numbers), which is listed but cannot be decoded. NumPy
        shapes are the reverse of GGUF's dimensions, and those of safetensors as they are. ``file.stored`` has the
        tensors under the names of the file, and ``file.notes`` says what looks quantized and is not known or not
        whole: to ask for a weight whose parts do not fit together is a ValueError.

    Raises
    ------
    OSError
        The file, or one of its shards, cannot be opened or is no regular file (a FIFO, a device).
    ValueError
        First bytes that are not known; shards that do not belong together; a safetensors file that is cut or
        contradicts itself; a `tile` that is no size.
    TypeError
        A `tile` that is no pair of whole numbers or None, an `unscaled_fp8` that is no bool.
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
    options = Options(_checked_tile(tile), _checked_flag("unscaled_fp8", unscaled_fp8))
    path = as_path("path", path)
    data = map_file(path)
    head = data[:_HEAD].tobytes()
    for recognises, read in _READERS:
        if recognises(head):
            return read(path, data, options)
    found = repr(head[:16]) if head else "an empty file"
    expected = f"a file that begins with {gguf.MAGIC!r}, or one of safetensors or its index"
    raise ValueError(f"{path}: expected {expected}, got {found}")


def _checked_tile(tile: Any) -> Tile:
    if not isinstance(tile, (tuple, list)) or len(tile) != 2:
        raise TypeError(f"tile: expected (rows, columns), got {tile!r}")
    for part in tile:
        if part is not None and (isinstance(part, bool) or not hasattr(part, "__index__")):
            raise TypeError(f"tile: expected whole numbers from 1 or None, got {tile!r}")
        if part is not None and part < 1:
            raise ValueError(f"tile: expected whole numbers from 1 or None, got {tile!r}")
    rows, columns = (None if part is None else operator.index(part) for part in tile)
    return rows, columns


def _checked_flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}: expected True or False, got {value!r}")
    return bool(value)
