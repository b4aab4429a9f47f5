"""`validate`: blocks whose scales are no numbers."""

from __future__ import annotations

import numpy as np
import pytest

import cbquant
from tests.paths import BLOCK_FORMATS, random_blocks


def bad_scale_positions(fmt: str) -> list[int]:
    """Where the two bytes of each f16 scale or minimum of a block are, found by trying."""
    size = cbquant._formats.get(fmt).bytes
    found = []
    for at in range(size - 1):
        block = np.zeros(size, np.uint8)
        block[at : at + 2] = 0x00, 0x7C
        if len(cbquant.validate(block, fmt)):
            found.append(at)
    return found


@pytest.mark.parametrize("fmt", [f.name for f in BLOCK_FORMATS if f.name not in ("mxfp4", "nvfp4", "iq1_m")])
def test_validate_finds_each_scale(fmt: str) -> None:
    f = cbquant._formats.get(fmt)
    positions = bad_scale_positions(fmt)
    assert len(positions) == 1 + f.has_min
    for at in positions:
        for low, high in ((0x00, 0x7C), (0x00, 0xFC), (0x01, 0x7C), (0xFF, 0xFF)):
            blocks = np.zeros((9, f.bytes), np.uint8)
            blocks[[2, 5], at], blocks[[2, 5], at + 1] = low, high
            assert cbquant.validate(blocks, fmt).tolist() == [2, 5]
            assert not np.isfinite(cbquant.dequant(blocks, fmt)[2]).all()


@pytest.mark.parametrize("fmt", [f.name for f in cbquant.formats()])
def test_validate_agrees_with_the_values(fmt: str) -> None:
    """A block with a bad scale has a value that is not finite, and the other way round but for overflow."""
    blocks = random_blocks(fmt, 4000).reshape(4000, -1)
    bad = cbquant.validate(blocks, fmt)
    assert bad.dtype == np.int64
    finite = np.isfinite(cbquant.reference.dequant(blocks, fmt).reshape(4000, -1)).all(axis=1)
    if fmt in (
        "mxfp4",
        "f64",
    ):  # scale 2^127 times 2 and up, and doubles beyond float32, overflow with a good scale
        assert set(bad) <= set(np.flatnonzero(~finite))
    else:
        assert bad.tolist() == np.flatnonzero(~finite).tolist()


def test_validate_in_all_special_formats() -> None:
    mxfp4 = np.zeros((256, 17), np.uint8)
    mxfp4[:, 0] = np.arange(256)
    assert cbquant.validate(mxfp4, "mxfp4").tolist() == [255]
    nvfp4 = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 36, axis=1)
    assert cbquant.validate(nvfp4, "nvfp4").size == 0  # 0x7f reads as zero: there is no NaN
    iq1_m = np.zeros((2, 56), np.uint8)
    iq1_m[1, [49, 51, 53, 55]] = 0x00, 0x00, 0xC0, 0x70  # the nibbles of 0x7c00
    assert cbquant.validate(iq1_m, "iq1_m").tolist() == [1]
    assert cbquant.validate(np.array([1, np.inf, np.nan]), "f64").tolist() == [1, 2]
    assert cbquant.validate(b"", "q4_0").size == 0
