"""Moves between planes and GGUF's blocks: the same numbers to the bit, or an error that says where."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cbquant
from cbquant import planes
from cbquant.reference import dequant as reference_of_blocks
from cbquant.reference import planes as reference
from tests.planes_inputs import assert_same, make

ELEMENTS = {"mxfp4": 32, "nvfp4": 64}


def planes_of(fmt: str, shape: tuple[int, ...], seed: int = 0) -> tuple[Any, Any]:
    """Random planes that blocks can hold."""
    case = make(f"{fmt}_planes", shape, seed)
    scales = case.scales
    if fmt == "nvfp4":
        scales &= 0x7F
        scales[scales == 0x7F] = 0x7E
    return case.codes, scales


@pytest.mark.parametrize("fmt", ELEMENTS)
@pytest.mark.parametrize("shape", [(64,), (1, 64), (3, 128), (2, 3, 320), (0, 64), (3, 0), (513, 4096)], ids=str)
def test_planes_become_blocks_and_come_back(fmt: str, shape: tuple[int, ...]) -> None:
    codes, scales = planes_of(fmt, shape)
    blocks = planes.to_blocks(fmt, codes, scales)
    f = next(f for f in cbquant.formats() if f.name == fmt)
    assert blocks.shape == (*shape[:-1], shape[-1] // f.elements * f.bytes)
    expected = reference.dequant(fmt, codes, scales)
    assert_same(reference_of_blocks(blocks, fmt, shape), expected)
    assert_same(cbquant.dequant(blocks, fmt, shape), expected)
    again = planes.from_blocks(blocks, fmt, shape)
    assert np.array_equal(again.codes.reshape(codes.shape), codes)
    assert np.array_equal(again.scales, scales)
    assert again.global_scale == (1.0 if fmt == "nvfp4" else None)


@pytest.mark.parametrize("fmt", ELEMENTS)
def test_blocks_become_planes_and_come_back(fmt: str) -> None:
    f = next(f for f in cbquant.formats() if f.name == fmt)
    blocks = np.random.default_rng(1).integers(0, 256, (2, 300, 3 * f.bytes), dtype=np.uint8)
    if fmt == "nvfp4":
        scales = blocks.reshape(-1, f.bytes)[:, :4]
        scales[scales == 0xFF] = 0x7F
    found = planes.from_blocks(blocks, fmt)
    y = planes.dequant(fmt, found.codes, found.scales, global_scale=found.global_scale)
    assert_same(y, reference_of_blocks(blocks, fmt))
    again = planes.to_blocks(fmt, *found[:2], global_scale=found.global_scale)
    if fmt == "mxfp4":
        assert np.array_equal(again, blocks)
    assert_same(reference_of_blocks(again, fmt), y)


@settings(deadline=None)
@given(data=st.binary(min_size=34, max_size=34 * 3), fmt=st.sampled_from(sorted(ELEMENTS)), upper=st.booleans())
def test_any_blocks(data: bytes, fmt: str, upper: bool) -> None:
    f = next(f for f in cbquant.formats() if f.name == fmt)
    data = data.ljust(f.bytes, b"\0")
    data = data[: len(data) // f.bytes * f.bytes]
    name = fmt.upper() if upper else f"{fmt}_planes"
    try:
        found = planes.from_blocks(data, name)
    except ValueError:
        assert fmt == "nvfp4"
        assert 0xFF in data
        return
    assert_same(planes.dequant(fmt, found.codes, found.scales), reference_of_blocks(data, fmt))


def test_every_scale_of_mxfp4_moves() -> None:
    scales = np.arange(256, dtype=np.uint8)[:, None]
    codes = np.broadcast_to(np.arange(16, dtype=np.uint8) * 17, (256, 1, 16))
    blocks = planes.to_blocks("mxfp4", codes, scales)
    assert np.array_equal(blocks[:, 0], scales[:, 0])
    assert_same(cbquant.dequant(blocks, "mxfp4"), planes.dequant("mxfp4", codes, scales))


def test_the_order_of_nibbles_by_hand() -> None:
    codes = np.array([[0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE] * 2], np.uint8)  # 0 1 2 .. 15, twice
    blocks = planes.to_blocks("mxfp4", codes, np.array([[127]], np.uint8))
    assert blocks[0].tolist() == [127, *(17 * i for i in range(16))]
    halves = planes.to_blocks("nvfp4", np.tile(codes[:, :8], 4), np.full((1, 4), 0x38, np.uint8))
    assert halves[0].tolist() == [0x38] * 4 + [i | (i + 8) << 4 for i in range(8)] * 4


@pytest.mark.parametrize("bad", [0x7F, 0x80, 0x81, 0xB8, 0xFE, 0xFF])
def test_scales_that_blocks_of_nvfp4_cannot_hold(bad: int) -> None:
    codes, scales = planes_of("nvfp4", (2, 5, 128))
    scales[1, 2, 6] = bad
    text = f"scales: scale 0x{bad:02X} (row 7, scale 6) is negative or NaN, which GGUF's nvfp4 cannot hold"
    with pytest.raises(ValueError, match=re.escape(text)):
        planes.to_blocks("nvfp4", codes, scales)


def test_scale_bytes_that_only_blocks_have() -> None:
    block = np.zeros((3, 72), np.uint8)
    block[:, 4:36] = 0x22
    block[1, :4] = [0x7F, 0xB8, 0x80, 0x38]  # 0, 1 and 0 in blocks, which ignore the sign
    found = planes.from_blocks(block, "nvfp4")
    assert found.scales[1, :4].tolist() == [0, 0x38, 0, 0x38]
    assert_same(planes.dequant("nvfp4", found.codes, found.scales), reference_of_blocks(block, "nvfp4"))
    block[2, 37] = 0xFF
    text = "buf: scale 0xFF (row 2, scale 5) is a scale of 480 in blocks, which planes cannot hold"
    with pytest.raises(ValueError, match=re.escape(text)):
        planes.from_blocks(block, "nvfp4")


def test_strided_planes_and_other_types() -> None:
    import ml_dtypes

    codes, scales = planes_of("mxfp4", (6, 64))
    expected = planes.to_blocks("mxfp4", codes, scales)
    assert np.array_equal(planes.to_blocks("mxfp4", codes[::2], scales[::2]), expected[::2])
    assert np.array_equal(planes.to_blocks("mxfp4", np.asfortranarray(codes), np.asfortranarray(scales)), expected)
    assert np.array_equal(planes.to_blocks("mxfp4", codes, scales.view(ml_dtypes.float8_e8m0fnu)), expected)
    found = planes.from_blocks(expected[::-1], "mxfp4")
    assert np.array_equal(found.codes.reshape(6, 32), codes[::-1])
    assert planes.from_blocks(expected.tobytes(), "mxfp4").codes.shape == (12, 16)
    assert planes.from_blocks(expected.reshape(-1), "mxfp4", (6, 64)).scales.shape == (6, 2)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("global_scale: blocks of nvfp4 have none, expected 1, got 0.5",
         lambda c, s: planes.to_blocks("nvfp4", c, s, global_scale=0.5)),
        ("global_scale: blocks of nvfp4 have none, expected 1, got 2",
         lambda c, s: planes.to_blocks("nvfp4", c, s, global_scale=2, global_scale_is="divisor")),
        ("codes: k=48 is not a multiple of 64 (GGUF's nvfp4)",
         lambda c, s: planes.to_blocks("nvfp4", c[:, :24], s[:, :3])),
        ("fmt: GGUF has no blocks of fp8_e4m3, only of mxfp4 and nvfp4",
         lambda c, s: planes.to_blocks("fp8_e4m3", c, s)),
        ("fmt: GGUF has no blocks of nf4, only of mxfp4 and nvfp4", lambda c, s: planes.from_blocks(c, "nf4")),
        ("fmt: unknown format of planes 'mxfp5'", lambda c, s: planes.from_blocks(c, "mxfp5")),
        ("buf: 128 bytes are not a multiple of 36 (one block of nvfp4)", lambda c, s: planes.from_blocks(c, "nvfp4")),
        ("buf: expected 72 bytes for shape (2, 64) of nvfp4, got 36",
         lambda c, s: planes.from_blocks(bytes(36), "nvfp4", (2, 64))),
        ("scales: expected shape (2, 8)", lambda c, s: planes.to_blocks("nvfp4", c, s[:1])),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(text: str, call: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        call(*planes_of("nvfp4", (2, 128)))


def test_a_global_scale_of_one_is_none() -> None:
    codes, scales = planes_of("nvfp4", (2, 128))
    expected = planes.to_blocks("nvfp4", codes, scales)
    for name in ("multiplier", "divisor"):
        assert np.array_equal(planes.to_blocks("nvfp4", codes, scales, global_scale=1, global_scale_is=name), expected)
