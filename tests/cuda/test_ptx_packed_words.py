"""A pattern that nvcc 13.0.88 has made wrong code of, as the kernels write it: nothing may be missing."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests import ptx
from tests.cuda.ptx_modules import ARCHITECTURES, kernels_ptx
from tests.paths import ROOT
from tests.ptx.nvcc import find_nvcc

TABLE = np.frombuffer(bytes.fromhex("01182d3f 4f5d6a76 818d99a6 b5c5d9f1"), np.uint8).astype(np.float32) - 128
THREADS = 128

pytestmark = pytest.mark.skipif(find_nvcc() is None, reason="nvcc not found: the device code is not compiled")


@pytest.mark.parametrize("arch", ["sm_75", *ARCHITECTURES])
@pytest.mark.parametrize("threads", [300, 45])
def test_every_packed_word_is_stored(arch: str, threads: int) -> None:
    rng = np.random.default_rng(threads)
    nibbles = rng.integers(0, 256, (threads, 8), np.uint8)
    scales = rng.standard_normal(threads).astype(np.float32)
    source, factors = ptx.Buffer(nibbles, "nibbles"), ptx.Buffer(scales, "scales")
    y = ptx.Buffer.poison(16 * threads, np.uint16)
    module = ptx.load(kernels_ptx(ROOT / "tests" / "cuda" / "packed_words.cu", arch).read_text())
    ptx.run(module, "packed_words", 1, THREADS, [source, factors, y, np.uint32(threads)])
    assert len(y.unwritten()) == 0
    codes = np.stack([nibbles & 15, nibbles >> 4], 1)
    expected = (scales[:, None, None] * TABLE[codes]).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(y.array.reshape(threads, 2, 8), expected.view(np.uint16))
