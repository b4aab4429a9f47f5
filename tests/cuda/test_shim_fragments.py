"""Weights in the layout for fragments: packed, unpacked, decoded and multiplied as the host starts it, by kernels that
g++ compiled, with threads on the CPU, and by nvcc's PTX in the interpreter."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cbquant
from cbquant import reference
from cbquant.testing import assert_bits_equal
from tests import ptx
from tests.cuda.products import (
    CODES,
    FRAGMENTS,
    MARGIN,
    PRECISIONS,
    Weights,
    assert_close,
    exact,
    from_bf16,
    make_weights,
    make_x,
    to_bf16,
)
from tests.cuda.ptx_modules import load_kernels
from tests.cuda.shim import KERNEL_INCLUDES, Shim, ShimError, build, why_not
from tests.cuda.test_shim_products import KERNELS, multiply
from tests.paths import as_float, random_blocks
from tests.ptx.nvcc import find_nvcc

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

SOURCES = ("matmul", "fragments", "repack")


class Shape(ctypes.Structure):
    """cbq_cuda_weights of cuda/host/kernels.h."""

    _fields_ = (("tag", ctypes.c_int), *((name, ctypes.c_uint64) for name in ("experts", "n", "k")))


@pytest.fixture(scope="module")
def library() -> Shim:
    return Shim(build([KERNELS / f"{name}.cu" for name in SOURCES], KERNEL_INCLUDES))


@pytest.fixture
def shim(library: Shim) -> Iterator[Shim]:
    yield library
    library.free()


@pytest.fixture(scope="module")
def modules() -> list[ptx.Loaded]:
    return [load_kernels(name, "sm_80") for name in SOURCES]


@pytest.fixture
def interpreter(request: pytest.FixtureRequest, shim: Shim) -> Iterator[Shim]:
    """Kernels are run by the interpreter of PTX."""
    if find_nvcc() is None:
        pytest.skip("nvcc not found: the device code is not compiled")
    shim.interpret(request.getfixturevalue("modules"))
    yield shim
    shim.run_fibers()


@pytest.fixture(params=["fibers", "interpreter"])
def either(request: pytest.FixtureRequest, shim: Shim) -> Shim:
    if request.param == "interpreter":
        request.getfixturevalue("interpreter")
    return shim


def shape_of(fmt: str, *shape: int) -> Shape:
    return Shape(cbquant._formats.get(fmt).tag, *shape)


def run(shim: Shim, function: str, shape: Shape, *arguments: Any) -> str:
    """The kernel's name."""
    name = ctypes.c_char_p()
    shim.call(function, ctypes.byref(shape), *arguments, None, ctypes.byref(name))
    assert name.value is not None
    return name.value.decode()


def pack(shim: Shim, shape: Shape, blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Fragments, in memory of the device."""
    margin = np.full(MARGIN, 0xFF, np.uint8)
    on_device = shim.upload(np.concatenate([margin, blocks.ravel(), margin]))[MARGIN:-MARGIN]
    shim.library.cbq_cuda_fragment_bytes.restype = ctypes.c_uint64
    fragments = shim.empty(shim.library.cbq_cuda_fragment_bytes(ctypes.byref(shape)), np.uint8)
    assert run(shim, "cbq_cuda_pack", shape, on_device, fragments).startswith("pack_")
    return fragments


def check_round_trip(shim: Shim, fmt: str, experts: int, n: int, in_row: int, dtype: str) -> None:
    """Bits of every kind: random ones."""
    shape = shape_of(fmt, experts, n, in_row * cbquant._formats.get(fmt).elements)
    blocks = random_blocks(fmt, experts * n * in_row, n)
    fragments = pack(shim, shape, blocks)
    if n % 64 == 0 and shape.k % 256 == 0:
        assert fragments.size == blocks.size
    back = shim.empty(blocks.size, np.uint8)
    assert run(shim, "cbq_cuda_unpack", shape, fragments, back) == f"unpack_{fmt}"
    assert np.array_equal(back, blocks.ravel())
    y = shim.empty(experts * n * shape.k, np.uint16 if dtype == "bfloat16" else dtype)
    run(shim, "cbq_cuda_dequant_fragments", shape, CODES[dtype], fragments, y)
    assert_bits_equal(as_float(y), as_float(reference.dequant(blocks, fmt, dtype=dtype)), fmt=fmt)


@pytest.mark.parametrize("fmt", FRAGMENTS)
def test_blocks_come_back_and_decode(shim: Shim, fmt: str) -> None:
    """No whole tile and no whole unit, several experts; and nothing but whole ones."""
    elements = cbquant._formats.get(fmt).elements
    for seed, (experts, n, in_row) in enumerate([(1, 1, 1), (2, 70, 256 // elements + 1), (1, 64, 1024 // elements)]):
        shim.seed(seed)
        check_round_trip(shim, fmt, experts, n, in_row, list(CODES)[seed])


@pytest.mark.parametrize("fmt", FRAGMENTS)
def test_device_code_packs_and_unpacks(interpreter: Shim, fmt: str) -> None:
    check_round_trip(interpreter, fmt, 1, 66, 1, list(CODES)[FRAGMENTS.index(fmt) % 3])


def product(either: Shim, x: NDArray[Any], dtype: str, w: list[Weights], precision: str, **more: Any) -> Any:
    n, k = w[0].values.shape
    blocks = np.concatenate([each.blocks.ravel() for each in w])
    fragments = pack(either, shape_of(w[0].fmt, len(w), n, k), blocks)
    return multiply(either, x, dtype, w, precision, fragments=fragments, **more)


def check_product(shim: Shim, fmt: str, precision: str, m: int, kernel: str, dtypes: tuple[str, ...]) -> None:
    elements = cbquant._formats.get(fmt).elements
    k = 3 * elements if elements > 128 else 11 * elements
    w = make_weights(fmt, 70, k)
    for seed, dtype in enumerate(dtypes):
        shim.seed(seed)
        x = make_x(m, k, dtype)
        y, name = product(shim, x, dtype, [w], precision)
        assert name == f"matmul_{fmt}_fragments_{kernel}"
        assert_close(y, "float32", exact(x, dtype, w.values, precision), k)


@pytest.mark.parametrize("fmt", FRAGMENTS)
@pytest.mark.parametrize(
    ("precision", "m", "kernel"), [("bf16", 5, "bf16_8"), ("bf16", 17, "bf16_64"), ("f32", 3, "f32_8")]
)
def test_every_format(shim: Shim, fmt: str, precision: str, m: int, kernel: str) -> None:
    check_product(shim, fmt, precision, m, kernel, ("float32", "bfloat16"))


@pytest.mark.parametrize("fmt", FRAGMENTS)
def test_device_code_multiplies(interpreter: Shim, fmt: str) -> None:
    """Up to eight rows; test_weights_are_those_of_dequant has more of them."""
    check_product(interpreter, fmt, "bf16", 5, "bf16_8", ("bfloat16",))
    if fmt in ("q4_0", "q6_k"):
        check_product(interpreter, fmt, "f32", 3, "f32_8", ("float32",))


@pytest.mark.parametrize("fmt", FRAGMENTS)
def test_weights_are_those_of_dequant(either: Shim, fmt: str) -> None:
    """Times rows of the unit matrix: each weight by itself, bfloat16 of the decoded value, whatever its size."""
    elements = cbquant._formats.get(fmt).elements
    k, n = max(elements, 128), 130
    blocks = random_blocks(fmt, n * k // elements).reshape(n, -1)
    values = reference.dequant(blocks, fmt, dtype="bfloat16").reshape(n, k)
    rows = np.isfinite(as_float(reference.dequant(blocks, fmt)).reshape(n, k)).all(1)
    rows &= np.abs(reference.dequant(blocks, fmt).reshape(n, k)).max(1) < 2.0**127
    w = Weights(fmt, blocks[rows], np.zeros((int(rows.sum()), k)))
    y, _ = product(either, np.eye(k, dtype=np.float32), "float32", [w], "bf16", y_dtype="bfloat16")
    assert (as_float(y.T) == as_float(values[rows])).all()


def test_split_scales_are_exact() -> None:
    """What decode_fragments.cuh says of d = high + low: every binary16 that is a number, every code of 4 and 5 bits."""
    d = np.arange(65536, dtype=np.uint32).astype(np.uint16).view(np.float16).astype(np.float32)
    d = d[np.isfinite(d)]
    high = from_bf16(to_bf16(d))
    for code in range(-16, 16):
        low = (d - high) * np.float32(code)
        assert np.array_equal(from_bf16(to_bf16(low)), low)


SHAPES = [(1, 1, 1), (7, 65, 3), (8, 64, 9), (63, 66, 2), (130, 300, 1)]


@pytest.mark.parametrize("fmt", ["q4_0", "q6_k", "nvfp4"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_odd_shapes(shim: Shim, fmt: str, precision: str, shape: tuple[int, int, int]) -> None:
    m, n, blocks = shape
    k = blocks * cbquant._formats.get(fmt).elements
    w, x = make_weights(fmt, n, k), make_x(m, k, "bfloat16")
    for seed in range(2):
        shim.seed(seed)
        options = {"processors": 1 + seed, "extra_stride": 3 * seed, "shift": seed}  # copied, and converted
        y, _ = product(shim, x, "bfloat16", [w], precision, **options)
        assert_close(y, "float32", exact(x, "bfloat16", w.values, precision), k)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("experts", "tokens", "picks"), [(4, 40, 3), (9, 6, 1)], ids=str)
def test_experts(shim: Shim, experts: int, tokens: int, picks: int, precision: str) -> None:
    n, k, rng = 70, 256, np.random.default_rng(experts)
    weights = [make_weights("iq4_xs", n, k, seed=e) for e in range(experts)]
    x, ids = make_x(tokens, k, "bfloat16"), rng.integers(-1, experts, (tokens, picks)).astype(np.int32)
    y, name = product(shim, x, "bfloat16", weights, precision, ids=ids, processors=4)
    assert name.startswith("matmul_iq4_xs_fragments_")
    for row, e in enumerate(ids.ravel()):
        expected = exact(x[row // picks][None], "bfloat16", weights[max(e, 0)].values, precision)
        if e >= 0:
            assert_close(y[row : row + 1], "float32", expected, k)
        else:
            assert not y[row].any()


def test_a_format_without_fragments(shim: Shim) -> None:
    shape = shape_of("q2_k", 1, 64, 256)
    shim.library.cbq_cuda_fragment_bytes.restype = ctypes.c_uint64
    assert shim.library.cbq_cuda_fragment_bytes(ctypes.byref(shape)) == 0
    with pytest.raises(ShimError, match="cudaErrorInvalidValue"):
        run(shim, "cbq_cuda_pack", shape, None, None)
