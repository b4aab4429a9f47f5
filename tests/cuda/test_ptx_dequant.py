"""The device's decoder, as nvcc compiled it: its PTX runs in the interpreter and must give the reference's bits."""

from __future__ import annotations

import struct
from collections import Counter

import numpy as np
import pytest

import cbquant
from cbquant import reference
from cbquant._formats import Format
from cbquant.testing import assert_bits_equal
from tests import ptx
from tests.cuda.planes import KINDS, blocks_of, quantized
from tests.cuda.products import MARGIN
from tests.cuda.ptx_modules import ARCHITECTURES, load_kernels
from tests.paths import BLOCK_FORMATS, ROOT, as_float, random_blocks
from tests.ptx.nvcc import find_nvcc

FORMATS = [f.name for f in cbquant.formats()]
SUFFIX = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
THREADS, TILE = 128, 4096  # of cuda/kernels/dequant.cu

pytestmark = pytest.mark.skipif(find_nvcc() is None, reason="nvcc not found: the device code is not compiled")


@pytest.fixture(scope="module", params=ARCHITECTURES)
def module(request: pytest.FixtureRequest) -> ptx.Loaded:
    return load_kernels("dequant", request.param)


def decode(
    module: ptx.Loaded, fmt: str | Format, dtype: str, blocks: np.ndarray, stats: Counter | None = None
) -> np.ndarray:
    """The device's values as float32 or float16, or as bfloat16's bits; every one of them must have been stored."""
    f = fmt if isinstance(fmt, Format) else cbquant._formats.get(fmt)
    n = blocks.size // f.bytes
    out = ptx.Buffer.poison(n * f.elements, np.uint16 if dtype == "bfloat16" else np.dtype(dtype))
    blocks_per_cta = THREADS if f.kind == "plain" else TILE // f.elements
    source = ptx.Buffer(np.append(blocks, np.full(MARGIN, 0xFF, np.uint8)), "blocks")
    args = struct.pack("3Q", source.address, out.address, n)
    name = f"cbq_dequant_{f.name}_{SUFFIX[dtype]}"
    buffers = [source, out]
    ptx.run(module, name, grid=-(-n // blocks_per_cta), block=THREADS, args=[args], stats=stats, buffers=buffers)
    assert len(out.unwritten()) == 0
    return out.array


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("dtype", SUFFIX)
def test_device_code_equals_reference(module: ptx.Loaded, fmt: str, dtype: str) -> None:
    blocks = random_blocks(fmt, 150)
    expected = reference.dequant(blocks, fmt, dtype=dtype)
    assert_bits_equal(as_float(decode(module, fmt, dtype, blocks)), as_float(expected), fmt=fmt)


@pytest.mark.parametrize(("fmt", "how"), KINDS)
def test_device_code_equals_planes(module: ptx.Loaded, fmt: str, how: str) -> None:
    t = quantized(fmt, how, 5, 1024)
    info, blocks = blocks_of(t)
    assert_bits_equal(decode(module, info, "float32", blocks), t.dequant().ravel())


@pytest.mark.parametrize("fmt", cbquant.testing.names())
def test_device_code_equals_vectors(module: ptx.Loaded, fmt: str) -> None:
    for case in cbquant.testing.vectors(fmt):
        values = decode(module, fmt, "float32", case.blocks).reshape(case.f32.shape)
        assert_bits_equal(values, case.f32, fmt=fmt, err_msg=case.name)


def test_no_product_and_sum_can_be_fused(module: ptx.Loaded) -> None:
    """A mul and an add without a rounding modifier may become one fma in ptxas, with another sign of zero."""
    assert {name: f.contractible() for name, f in module.module.functions.items() if f.contractible()} == {}


# Executed PTX instructions of a thread, for each element that it decodes. nvcc 13.0 makes 6 to 20 (eight elements
# at a time: scales and signs are looked up for each eight); a format that takes far more has lost its unrolling.
INSTRUCTIONS_PER_ELEMENT = 22


@pytest.mark.parametrize("fmt", [f.name for f in BLOCK_FORMATS])
def test_device_code_stays_short(module: ptx.Loaded, fmt: str, record_property) -> None:  # type: ignore[no-untyped-def]
    f = cbquant._formats.get(fmt)
    stats: Counter[str] = Counter()
    n = 2048 * 32 // f.elements
    decode(module, fmt, "float32", random_blocks(fmt, n), stats)
    per_element = sum(stats.values()) / (n * f.elements)
    record_property(f"ptx_instructions_per_element_{fmt}", round(per_element, 2))
    assert 1 < per_element < INSTRUCTIONS_PER_ELEMENT


def test_the_source_says_that_it_has_not_run_on_a_gpu() -> None:
    assert "Not yet run on a GPU" in (ROOT / "cuda" / "kernels" / "dequant.cu").read_text()
