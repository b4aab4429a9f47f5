"""The device's products, as nvcc compiled them: their PTX runs in the interpreter against exact sums."""

from __future__ import annotations

import struct
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

import cbquant
from tests import ptx
from tests.cuda.planes import KINDS, quantized, weights_of
from tests.cuda.products import (
    CODES,
    MARGIN,
    PLAIN,
    Weights,
    assert_close,
    exact,
    make_plain,
    make_weights,
    make_x,
)
from tests.cuda.ptx_modules import ARCHITECTURES, load_kernels
from tests.paths import ENCODED_FORMATS, ROOT
from tests.ptx.nvcc import find_nvcc

FORMATS = [f.name for f in ENCODED_FORMATS]
THREADS, ROWS = 128, 64  # of cuda/device/work.cuh
SHARED = 99 * 1024  # the most that a kernel takes: a static_assert in matmul.cu

pytestmark = pytest.mark.skipif(find_nvcc() is None, reason="nvcc not found: the device code is not compiled")


@pytest.fixture(scope="module", params=ARCHITECTURES)
def module(request: pytest.FixtureRequest) -> ptx.Loaded:
    return load_kernels("matmul", request.param)


def multiply(
    module: ptx.Loaded,
    kernel: str,
    x: NDArray[np.generic],
    dtype: str,
    w: Weights,
    ctas: int,
    *,
    stats: Counter[str] | None = None,
    seed: int | None = None,
) -> NDArray[np.float32]:
    """y; every element must have been stored. The arguments are the product_args of cuda/device/work.cuh."""
    (n, k), m, tokens = w.values.shape, len(x), 64 if kernel.endswith("_64") else 8
    long = w.fmt not in PLAIN and (tokens == 8 or (w.fmt in FORMATS and cbquant._formats.get(w.fmt).elements > 128))
    step = 256 if long else 128
    steps = -(-k // step)
    ctas = min(ctas, -(-m // tokens) * -(-n // ROWS) * steps)
    w_device, x_device = ptx.Buffer(w.with_margin, "w"), ptx.Buffer(x, "x")
    y = ptx.Buffer.poison(m * n, np.float32)
    parts = ptx.Buffer.poison(ctas * 2 * ROWS * tokens, np.float32)
    addresses = (x_device.address, w_device.address + MARGIN, y.address, parts.address, 0, 0, 0)
    args = [struct.pack("10Q6I2i", *addresses, k, n, 0, m, n, k, 1, 1, steps, CODES[dtype], CODES["float32"])]
    memory = [x_device, w_device, y, parts]
    name = f"cbq_matmul_{w.fmt}_{kernel}"
    ptx.run(module, name, ctas, THREADS, args, SHARED, stats, seed=seed, buffers=memory)
    ptx.run(module, f"cbq_sum_parts_{tokens}", ctas, THREADS, args, seed=seed, buffers=memory)
    assert len(y.unwritten()) == 0
    return y.array.reshape(m, n)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(
    ("kernel", "m", "dtype"), [("bf16_8", 5, "bfloat16"), ("bf16_64", 17, "float32"), ("f32_8", 3, "float32")]
)
def test_every_format(module: ptx.Loaded, fmt: str, kernel: str, m: int, dtype: str) -> None:
    f = cbquant._formats.get(fmt)
    k = 3 * f.elements if f.elements > 128 else 11 * f.elements
    w, x = make_weights(fmt, 70, k), make_x(m, k, dtype)
    y = multiply(module, kernel, x, dtype, w, 4)
    assert_close(y, "float32", exact(x, dtype, w.values, kernel.split("_")[0]), k)


@pytest.mark.parametrize(
    ("fmt", "kernel", "m", "k"), [("f32", "bf16_8", 3, 296), ("f16", "bf16_64", 17, 157), ("bf16", "f32_8", 5, 160)]
)
def test_plain_types(module: ptx.Loaded, fmt: str, kernel: str, m: int, k: int) -> None:
    w, x = make_plain(fmt, 70, k), make_x(m, k, "bfloat16")
    y = multiply(module, kernel, x, "bfloat16", w, 3)
    assert_close(y, "float32", exact(x, "bfloat16", w.values, kernel.split("_")[0]), k)


@pytest.mark.parametrize(("fmt", "how"), KINDS)
def test_planes(module: ptx.Loaded, fmt: str, how: str) -> None:
    w = weights_of(quantized(fmt, how, 70, 320))
    for kernel, m in (("bf16_8", 5), ("bf16_64", 17)):
        x = make_x(m, 320, "bfloat16")
        y = multiply(module, kernel, x, "bfloat16", w, 3)
        assert_close(y, "float32", exact(x, "bfloat16", w.values, "bf16"), 320)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kernel", ["bf16_8", "bf16_64", "f32_8"])
def test_warps_that_drift_apart(module: ptx.Loaded, kernel: str, seed: int) -> None:
    w, x = make_weights("q4_0", 130, 1056), make_x(9, 1056, "bfloat16")
    y = multiply(module, kernel, x, "bfloat16", w, 3, seed=seed)
    assert_close(y, "float32", exact(x, "bfloat16", w.values, kernel.split("_")[0]), 1056)


# Executed PTX instructions of a lane for each weight, without a tile's beginning and end, for up to 8 rows of x. nvcc
# 13.0 makes 7 to 17, of which ptxas leaves about two thirds.
INSTRUCTIONS_PER_WEIGHT = 19


@pytest.mark.parametrize("fmt", FORMATS)
def test_device_code_stays_short(module: ptx.Loaded, fmt: str, record_property) -> None:  # type: ignore[no-untyped-def]
    counts = []
    for k in (512, 1024):
        stats: Counter[str] = Counter()
        multiply(module, "bf16_8", make_x(8, k, "bfloat16"), "bfloat16", make_weights(fmt, ROWS, k), 1, stats=stats)
        counts.append(sum(stats.values()))
    per_weight = (counts[1] - counts[0]) / (ROWS * 512)
    record_property(f"ptx_instructions_per_weight_{fmt}", round(per_weight, 2))
    assert 3 < per_weight < INSTRUCTIONS_PER_WEIGHT


def test_no_product_and_sum_can_be_fused(module: ptx.Loaded) -> None:
    """What decoding promises to round twice, ptxas must not round once."""
    assert {name: f.contractible() for name, f in module.module.functions.items() if f.contractible()} == {}


def test_the_sources_say_that_they_have_not_run_on_a_gpu() -> None:
    for source in sorted((ROOT / "cuda" / "kernels").glob("*.cu")):
        if "__global__" in source.read_text():
            assert "Not yet run on a GPU" in source.read_text(), source.name
