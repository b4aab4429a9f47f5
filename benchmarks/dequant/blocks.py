"""Blocks to decode."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import cbquant
from cbquant._buffer import PLAIN_DTYPES
from cbquant._formats import Format

_MAX_COPIES = 1024


class ColdBlocks:
    """Blocks as a model's file has them: read once, from memory. Copies of the same blocks, given in turns, and as many
    of them as it takes to be more than twice the last cache."""

    def __init__(self, raw: NDArray[np.uint8]) -> None:
        last_cache = cbquant.info()["last_cache_bytes"]
        copies = 2 * last_cache // raw.nbytes + 1
        self.nbytes = raw.nbytes
        #: whether a copy has left the caches when its turn comes again; not known where the size of the cache is not
        self.are_cold = last_cache > 0 and copies <= _MAX_COPIES
        self._copies = [raw.copy() for _ in range(copies if self.are_cold else 1)]
        self._turn = 0

    def next(self) -> NDArray[np.uint8]:
        """The copy that was used longest ago."""
        self._turn = (self._turn + 1) % len(self._copies)
        return self._copies[self._turn]


_LIMITS = np.finfo(np.float32)


def random_blocks(fmt: Format, elements: int, seed: int = 0) -> NDArray[np.uint8]:
    """Blocks that hold so many elements (a multiple of the format's block), as uint8 ``[bytes]``.

    Block formats: random bytes. Blocks that decode to infinities, NaN or subnormal values are drawn again: models
    do not have them, and with subnormal values many processors multiply a hundred times slower. Plain floats are
    normally distributed.
    """
    rng = np.random.default_rng([seed, fmt.tag])
    if fmt.kind == "plain":
        return _plain(fmt, elements, rng)
    blocks = rng.integers(0, 256, (elements // fmt.elements, fmt.bytes), np.uint8)
    drawn = np.arange(len(blocks))
    while drawn.size:
        drawn = drawn[_is_strange(cbquant.dequant(blocks[drawn], fmt.name))]
        blocks[drawn] = rng.integers(0, 256, (drawn.size, fmt.bytes), np.uint8)
    return blocks.reshape(-1)


def _is_strange(values: NDArray[np.float32]) -> NDArray[np.bool_]:
    """For rows of values: whether one of them is infinite, NaN or subnormal."""
    magnitudes = np.abs(values)
    ordinary = (magnitudes == 0) | ((magnitudes >= _LIMITS.tiny) & (magnitudes <= _LIMITS.max))
    strange: NDArray[np.bool_] = ~ordinary.all(axis=1)
    return strange


def _plain(fmt: Format, elements: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    name = PLAIN_DTYPES[fmt.name]
    if name.startswith("int"):
        return rng.integers(0, 256, elements * fmt.bytes, np.uint8)
    values = rng.standard_normal(elements, np.float32)
    if name == "bfloat16":  # the upper half of a float32
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return values.astype(name).view(np.uint8)
