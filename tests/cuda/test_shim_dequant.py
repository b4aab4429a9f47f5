"""The device's decoder, compiled by g++ and run with threads on the CPU, equals the reference by bits."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest

from cbquant import formats, reference
from cbquant.testing import assert_bits_equal
from tests.cuda.shim import KERNEL_INCLUDES, Shim, ShimError, build, why_not
from tests.paths import DTYPES, ROOT, as_float, random_blocks

FORMATS = {f.name: f for f in formats()}
CODES = {"float32": 0, "float16": 1, "bfloat16": 2}  # CBQ_F32 ... of csrc/base.h
MARGIN = 16  # of cuda/host/kernels.h
SUFFIX = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture(scope="module")
def library() -> Shim:
    return Shim(build([ROOT / "cuda" / "kernels" / "dequant.cu"], KERNEL_INCLUDES))


@pytest.fixture
def shim(library: Shim) -> Iterator[Shim]:
    yield library
    library.free()


def decode(shim: Shim, fmt: str, dtype: str, blocks: np.ndarray) -> np.ndarray:
    """The device's values as float32 or float16, or as bfloat16's bits."""
    f = FORMATS[fmt]
    n = blocks.size // f.bytes
    chunks = -(-blocks.size // 16) * 16
    # A kernel may read the rest of the last 16 bytes and the margin; behind them there is no memory.
    source = shim.empty(-(-(chunks + MARGIN) // 256) * 256, np.uint8)[-MARGIN - chunks :]
    source[: blocks.size] = blocks
    out = shim.empty(n * f.elements, np.uint16 if dtype == "bfloat16" else dtype)
    name = ctypes.c_char_p()
    shim.call("cbq_cuda_dequant", f.tag, CODES[dtype], source, ctypes.c_uint64(n), out, None, ctypes.byref(name))
    assert name.value is not None
    assert name.value.decode() == f"dequant_{fmt}_{SUFFIX[dtype]}"
    return out.copy()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fmt", FORMATS)
def test_kernel_equals_reference(shim: Shim, fmt: str, dtype: str) -> None:
    """Numbers of blocks: one, less than a CTA's, and several CTAs with a last one that is not full."""
    for seed, n in enumerate([1, 3, 77, 2 * 4096 // FORMATS[fmt].elements + 5]):
        shim.seed(seed)
        blocks = random_blocks(fmt, n, seed)
        expected = reference.dequant(blocks, fmt, dtype=dtype)
        assert_bits_equal(as_float(decode(shim, fmt, dtype, blocks)), as_float(expected), fmt=fmt)


@pytest.mark.parametrize("fmt", ["q4_0", "q6_k", "iq1_m", "bf16"])
def test_every_schedule_gives_the_same(shim: Shim, fmt: str) -> None:
    blocks = random_blocks(fmt, 400)
    expected = reference.dequant(blocks, fmt)
    for seed in range(20):
        shim.seed(seed)
        assert_bits_equal(decode(shim, fmt, "float32", blocks), expected, fmt=fmt)


def test_no_blocks_are_no_launch(shim: Shim) -> None:
    before = shim.library.shim_launches()
    assert decode(shim, "q4_0", "float32", np.empty(0, np.uint8)).size == 0
    assert shim.library.shim_launches() == before


def test_unknown_tag_is_an_error(shim: Shim) -> None:
    with pytest.raises(ShimError, match="cudaErrorInvalidValue"):
        shim.call("cbq_cuda_dequant", -1, 0, None, ctypes.c_uint64(1), None, None, ctypes.byref(ctypes.c_char_p()))
