"""The device's decoder, compiled by g++ and run with threads on the CPU, equals the reference by bits."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest

from cbquant import formats, reference
from cbquant.testing import assert_bits_equal
from tests.cuda.shim import KERNEL_INCLUDES, Shim, build, why_not
from tests.paths import DTYPES, ROOT, as_float, random_blocks

FORMATS = {f.name: f for f in formats()}
CODES = {"float32": 0, "float16": 1, "bfloat16": 2}  # CBQ_F32 ... of csrc/base.h
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
    source = shim.upload(np.append(blocks, np.full(-blocks.size % 16, 0x5A, np.uint8)))
    out = shim.empty(n * f.elements, np.uint16 if dtype == "bfloat16" else dtype)
    name = ctypes.c_char_p()
    shim.call("cbq_cuda_dequant", f.tag, CODES[dtype], source, ctypes.c_uint64(n), out, None, ctypes.byref(name))
    assert name.value is not None
    assert name.value.decode() == f"dequant_{fmt}_{SUFFIX[dtype]}"
    return out.copy()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fmt", FORMATS)
def test_kernel_equals_reference(shim: Shim, fmt: str, dtype: str) -> None:
    for seed, n in enumerate([1, 3, 131]):
        shim.seed(seed)
        blocks = random_blocks(fmt, n, seed)
        expected = reference.dequant(blocks, fmt, dtype=dtype)
        assert_bits_equal(as_float(decode(shim, fmt, dtype, blocks)), as_float(expected), fmt=fmt)
