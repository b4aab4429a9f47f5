"""What should hold. A ratio is of speeds measured in the same run."""

from __future__ import annotations

#: Planes to float32 in memory with two threads or more, as a part of the ceiling: filling the same memory.
TO_MEMORY = 0.85
#: Codecs, one thread each: times ml_dtypes' conversion.
CODECS = 10.0
#: Planes decoded with one thread, times the speed of a peer on a CPU: what bitsandbytes decodes, and what torch
#: converts without scales.
PEERS = {"bitsandbytes": 3.0, "torch": 1.0}
#: Products with the same numbers in blocks: planes cost little more.
OF_BLOCKS = 0.9


def to_memory(dtype: str, threads: int) -> float | None:
    """The target for decoding to memory, where there is one."""
    return TO_MEMORY if dtype == "float32" and threads > 1 else None


def codecs(kind: str, work: str, peer: str) -> float | None:
    """The target for a codec, where there is one. The scales of blocks are chosen by a rule, which ml_dtypes does not
    have: it converts powers of two.

    >>> codecs("e8m0", "decode", "ml_dtypes")
    10.0
    >>> codecs("e8m0", "encode", "ml_dtypes")
    """
    if peer != "ml_dtypes" or (kind, work) == ("e8m0", "encode"):
        return None
    return CODECS


def of_blocks(fmt: str, blocks: str, mode: str) -> float | None:
    """The target for products next to blocks, where the blocks are the same format: where planes have other codes or
    scales there is none.

    >>> of_blocks("mxfp4_planes", "mxfp4", "q8"), of_blocks("nf4", "nvfp4", "f32")
    (0.9, None)
    """
    return OF_BLOCKS if fmt.removesuffix("_planes") == blocks else None
