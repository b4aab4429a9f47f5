"""Blocks to decode and to multiply with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import cbquant
from benchmarks.machine import touched_memory
from cbquant._buffer import PLAIN_DTYPES
from cbquant._formats import Format

# So much memory, and so many arrays of it, a ring of copies takes at most.
_MAX_BYTES = 2 << 30
_MAX_COPIES = 1024


class Turns:
    """Whose turn it is, of so many.

    >>> turns = Turns(2)
    >>> [turns.next() for _ in range(3)]
    [0, 1, 0]
    """

    def __init__(self, count: int) -> None:
        self._count, self._last = count, -1

    def next(self) -> int:
        """The number of the one whose last turn is longest ago."""
        self._last = (self._last + 1) % self._count
        return self._last


class ColdCopies:
    """Data as a model's file has it: read once, from memory. Copies of the same array, used in turns, and as many of
    them as it takes to be more than twice the last cache.

    Parameters
    ----------
    array : ndarray
        Contiguous. Its copies begin at 64-byte boundaries.
    """

    def __init__(self, array: NDArray[Any]) -> None:
        last_cache = cbquant.info()["last_cache_bytes"]
        count = 2 * last_cache // array.nbytes + 1
        self.nbytes = array.nbytes
        #: whether a copy has left the caches when its turn comes again; not known where the size of the cache is not
        self.are_cold = last_cache > 0 and count <= _MAX_COPIES and count * array.nbytes <= _MAX_BYTES
        self.copies = [_aligned_copy(array) for _ in range(count if self.are_cold else 1)]
        self.turns = Turns(len(self.copies))

    def next(self) -> NDArray[Any]:
        """The copy that was used longest ago."""
        return self.copies[self.turns.next()]


def _aligned_copy(array: NDArray[Any]) -> NDArray[Any]:
    copy = touched_memory(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


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


# Blocks to draw from: more different ones than a branch predictor learns.
_POOL = 1024
_SMALL, _LARGE = 2.0**-10, 2.0**4


def weight_blocks(fmt: Format, elements: int, seed: int = 0) -> NDArray[np.uint8]:
    """Blocks to multiply with: those of `random_blocks` whose values are of a size that weights have.

    Scales that are random bits differ by a factor of 2^30 and more. One block would be all there is to see of a sum,
    and what goes wrong with the others would not be noticed; or the sum would be infinite. Here the largest value of a
    block is between 2^-10 and 2^4. The blocks are drawn from a pool, in random order. Plain types are as there.
    """
    if fmt.kind == "plain":
        return random_blocks(fmt, elements, seed)
    pool = np.empty((0, fmt.bytes), np.uint8)
    tries = 0
    while len(pool) < _POOL:
        drawn = random_blocks(fmt, _POOL * fmt.elements, seed=tries).reshape(-1, fmt.bytes)
        peaks = np.abs(cbquant.dequant(drawn, fmt.name)).max(axis=1)
        pool = np.concatenate([pool, drawn[(peaks >= _SMALL) & (peaks <= _LARGE)]])
        tries += 1
    rng = np.random.default_rng([seed, fmt.tag])
    return pool[rng.integers(0, len(pool), elements // fmt.elements)].reshape(-1)
