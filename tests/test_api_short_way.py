"""The C function that takes most calls of `dequant`, and leaves all that is not simple to Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cbquant
from cbquant import _core
from cbquant.testing import assert_bits_equal

Q8 = bytes.fromhex("003c") + bytes(range(32))  # q8_0: the scale 1.0, codes 0..31


def test_the_short_way_of_simple_calls_is_the_general_one() -> None:
    blocks = np.frombuffer(Q8 * 6, np.uint8).reshape(3, 68)
    general = cbquant.dequant(blocks, "q8_0", shape=(3, 64))
    for out in (None, np.empty((3, 64), np.float32)):
        short = _core.dequant_simple(blocks, "q8_0", out, 1)
        assert out is None or short is out
        assert_bits_equal(short, general)


@pytest.mark.parametrize(
    "arguments",
    [
        (Q8, "q8_0", None, None),
        (np.zeros(33, np.uint8), "q8_0", None, None),
        (np.zeros((), np.uint8), "q8_0", None, None),
        (np.zeros(68, np.uint8)[::2], "q8_0", None, None),
        (np.zeros(34, np.int8), "q8_0", None, None),
        (np.zeros(34, np.uint8), "Q8_0", None, None),
        (np.zeros(34, np.uint8), "\ud800", None, None),
        (np.zeros(34, np.uint8), None, None, None),
        (np.zeros(34, np.uint8), "q8_0", np.empty(31, np.float32), None),
        (np.zeros(34, np.uint8), "q8_0", np.empty((1, 32), np.float32), None),
        (np.zeros(34, np.uint8), "q8_0", np.empty(32, np.float16), None),
        (np.zeros(34, np.uint8), "q8_0", np.empty(32, ">f4"), None),
        (np.zeros(34, np.uint8), "q8_0", np.empty(64, np.float32)[::2], None),
        (np.zeros(34, np.uint8), "q8_0", np.broadcast_to(np.float32(0), 32), None),
        (np.zeros(34, np.uint8), "q8_0", None, 0),
        (np.zeros(34, np.uint8), "q8_0", None, True),
        (np.zeros(34, np.uint8), "q8_0", None, 1.0),
        (np.zeros(34, np.uint8), "q8_0", None, 10**30),
    ],
)
def test_what_is_not_simple_goes_the_general_way(arguments: tuple[Any, ...]) -> None:
    assert _core.dequant_simple(*arguments) is None
