"""A buffer of more than 2^31 elements, which no 32-bit index reaches.

It takes 10 GiB of memory and half a minute, so it is not among the tests that pytest finds by itself: run
``pytest tests/big/check_big.py``, or tools/check.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import cbquant
from tests.paths import random_blocks

ELEMENTS = 2**31 + 256  # 2^23 + 1 blocks of q2_k, 0.7 GB
PATTERN = 4099  # blocks that repeat: a prime, so that no power of two leads from a block to its like
NEEDED = 10 * 2**30


@pytest.fixture(scope="module")
def blocks() -> NDArray[np.uint8]:
    """Random blocks, repeated; the last one is like none of them."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    if available < NEEDED:
        pytest.fail(f"needs {NEEDED >> 30} GiB of memory, {available >> 30} are available")
    n, pattern = ELEMENTS // 256, random_blocks("q2_k", PATTERN).reshape(PATTERN, -1)
    blocks = np.resize(pattern, (n, pattern.shape[1]))
    blocks[-1] = random_blocks("q2_k", 1, seed=1)
    return blocks


def compare(actual: NDArray[np.uint16], expected: NDArray[np.uint16], first_block: int) -> None:
    """Blocks from `first_block` on against the pattern's values, a pattern's length at a time."""
    for begin in range(0, len(actual), PATTERN):
        part = actual[begin : begin + PATTERN]
        wanted = np.roll(expected, -(first_block + begin) % PATTERN, axis=0)[: len(part)]
        assert np.array_equal(part, wanted), f"blocks {first_block + begin} to {first_block + begin + len(part)}"


def decoded_pattern(blocks: NDArray[np.uint8]) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """The bits of the pattern's blocks, and of the last block, each decoded alone."""
    pattern = cbquant.dequant(blocks[:PATTERN], "q2_k", dtype="float16", threads=1).view(np.uint16)
    return pattern, cbquant.dequant(blocks[-1:], "q2_k", dtype="float16", threads=1).view(np.uint16)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_one_output_of_4_gigabytes(blocks: NDArray[np.uint8], threads: int) -> None:
    pattern, last = decoded_pattern(blocks)
    out = cbquant.dequant(blocks, "q2_k", dtype="float16", threads=threads).view(np.uint16)
    assert out.shape == (ELEMENTS // 256, 256)
    compare(out[:-1], pattern, 0)
    assert np.array_equal(out[-1:], last)
    assert not np.array_equal(last, pattern[(len(out) - 1) % PATTERN])


def test_one_output_as_a_vector(blocks: NDArray[np.uint8]) -> None:
    """float32, 8 GiB: byte offsets past 2^33."""
    out = cbquant.dequant(blocks.ravel(), "q2_k", shape=ELEMENTS, threads=2)
    assert np.array_equal(out[-256:], cbquant.dequant(blocks[-1], "q2_k"))
    assert np.array_equal(out[-512:-256], cbquant.dequant(blocks[-2], "q2_k"))
    assert np.array_equal(out[2**31 - 256 : 2**31], out[-512:-256])


def test_pieces(blocks: NDArray[np.uint8]) -> None:
    pattern, last = decoded_pattern(blocks)
    step = 2**20
    out = np.empty((step, 256), np.float16)
    for begin in range(0, len(blocks) - 1, step):
        cbquant.dequant(blocks[begin : begin + step], "q2_k", out=out, threads=2)
        compare(out.view(np.uint16), pattern, begin)
    assert np.array_equal(cbquant.dequant(blocks[-1:], "q2_k", dtype="float16").view(np.uint16), last)


def test_rows_and_validate(blocks: NDArray[np.uint8]) -> None:
    tensor = cbquant.QuantTensor(blocks, "q2_k", (len(blocks), 256))
    assert np.array_equal(tensor.rows([-1]), cbquant.dequant(blocks[-1:], "q2_k"), equal_nan=True)
    bad = cbquant.validate(blocks, "q2_k", threads=2)
    of_pattern = cbquant.validate(blocks[:PATTERN], "q2_k")
    repeated = (np.arange(0, len(blocks), PATTERN)[:, None] + of_pattern).ravel()
    assert np.array_equal(bad[bad < len(blocks) - 1], repeated[repeated < len(blocks) - 1])
