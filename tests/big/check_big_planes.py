"""Planes of more than 2^31 elements, as check_big.py has it for blocks: their ends decode as they do alone.

It takes 8 GiB of memory.
"""

from __future__ import annotations

import numpy as np
import pytest

from cbquant import QuantTensor, planes
from tests.planes_inputs import assert_same

ROW = 2**16
ROWS = 2**15 + 1


@pytest.mark.parametrize("threads", [1, 2])
def test_flat_blocks(threads: int) -> None:
    n = ROW * ROWS + 2
    codes = np.resize(np.random.default_rng(0).integers(0, 256, 4099, np.uint8), n // 2)
    scales = np.resize(np.arange(1, 1010, dtype=np.float32) / 64, -(-n // 64))
    y = planes.dequant("nf4", codes, scales, shape=n, dtype="float16", threads=threads)
    for begin in (0, 2**31 - 64 * 1000, 2**31 - 64, 2**31, n // 64 * 64 - 64 * 77):
        end = min(begin + 64 * 5000, n)
        part = planes.dequant(
            "nf4", codes[begin // 2 : end // 2], scales[begin // 64 : -(-end // 64)], shape=end - begin, dtype="float16"
        )
        assert_same(y[begin:end], part)


@pytest.mark.parametrize("threads", [1, 2])
def test_tiles(threads: int) -> None:
    codes = np.resize(np.random.default_rng(0).integers(0, 0x7E, 4099, np.uint8), (ROWS, ROW))
    scales = np.random.default_rng(1).uniform(0.5, 2, (-(-ROWS // 128), ROW // 128)).astype(np.float32)
    t = QuantTensor.from_planes("fp8_e4m3", codes, scales)
    y = t.dequant("float16", threads=threads)
    for rows in (slice(0, 3), slice(ROWS // 2, ROWS // 2 + 3), slice(ROWS - 3, ROWS)):
        assert_same(y[rows], t[rows].dequant("float16"))
    x = np.ones((1, ROW), np.float32)
    assert_same((x @ t.T)[:, -5:], x @ t[-5:].T)
