"""Checkpoints that bitsandbytes and compressed-tensors have written, and the numbers that they decode.

They lie in the folder CBQUANT_CHECKPOINTS, where `tools/check.py checkpoints` has put them: see `write_checkpoints.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import cbquant

CHECKPOINTS = sorted(Path(os.environ["CBQUANT_CHECKPOINTS"]).glob("*.safetensors"))

FORMATS = {
    "nvfp4-pack": "nvfp4_planes",
    "mxfp4-pack": "mxfp4_planes",
    "mxfp8": "mxfp8_e4m3",
    "float-quantized": "fp8_e4m3",
}
FORMATS |= {"-nf4-": "nf4", "-fp4-": "fp4"}


def test_there_are_checkpoints():
    assert len(CHECKPOINTS) == 11


@pytest.mark.parametrize("path", CHECKPOINTS, ids=lambda path: path.stem)
def test_the_numbers_are_those_of_the_library(path):
    expected = np.load(path.with_suffix(".npy"))
    file = cbquant.open(path)
    assert list(file) == ["layer.weight"]
    assert not file.notes
    info = file.infos["layer.weight"]
    assert info.format == next(fmt for part, fmt in FORMATS.items() if part in path.stem)
    assert info.shape == expected.shape
    assert len(info.parts) == len(file.stored)
    found = file["layer.weight"].dequant()
    if "nvfp4" in path.stem:
        # The library first divides the scale by that of the tensor, and rounds both times; here the code times the
        # scale is exact, so one rounding is less.
        np.testing.assert_allclose(found, expected, rtol=2**-22)
    else:
        np.testing.assert_array_equal(found, expected)
