"""What is known about a tensor of a model file before any of its bytes are read."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class TensorInfo(NamedTuple):
    """Where a tensor lies and what it is.

    Attributes
    ----------
    name : str
        The tensor's name.
    shape : tuple of int
        Dimensions in elements, in NumPy's order.
    format : str
        A name of `cbquant.formats`; ``"u8"``, ``"u16"``, ``"u32"``, ``"u64"`` or ``"bool"``, which only
        safetensors has; of a weight whose codes and scales are tensors of their own a name of
        `cbquant.planes.formats`; else ``"unknown_<tag>"``, with the dtype in the tag's place for safetensors.
    tag : int
        GGUF type number; -1 for a type that GGUF does not have.
    offset, nbytes : int
        Where its bytes begin in the file `path`, and how many there are. Those of a type that is unknown to
        GGUF reach to the next tensor or the end of the file, padding included: its own length is not known.
        Of a weight with `parts` the place is that of the first, and `nbytes` counts them all.
    path : Path
        The file, one of the shards of a sharded model.
    parts : tuple of str
        Of a weight whose codes and scales are tensors of their own: their names in ``file.stored``, codes first.
        Empty for a tensor that is stored as it is.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    tag: int
    offset: int
    nbytes: int
    path: Path
    parts: tuple[str, ...] = ()
