"""Products on the device, as the host starts them: compiled by g++ and run with threads on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cbquant
from tests.cuda.products import (
    CODES,
    MARGIN,
    PLAIN,
    PRECISIONS,
    Weights,
    assert_close,
    exact,
    make_plain,
    make_weights,
    make_x,
)
from tests.cuda.shim import KERNEL_INCLUDES, Shim, build, why_not
from tests.paths import ENCODED_FORMATS, ROOT

FORMATS = [f.name for f in ENCODED_FORMATS]
KERNELS = ROOT / "cuda" / "kernels"
NO_FRAGMENTS = "product_rows cbq_products_of_fragments() { return {NULL, 0}; }\n"  # matmul.cu alone, less to compile
LAYOUTS = ("blocks", "fragments")  # cbq_cuda_layout of cuda/host/kernels.h

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


class Product(ctypes.Structure):
    """cbq_cuda_product of cuda/host/kernels.h."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("tag", "precision", "x_dtype", "y_dtype")),
        *((name, ctypes.c_uint64) for name in ("m", "n", "k", "x_stride", "y_stride")),
        *((name, ctypes.c_void_p) for name in ("x", "w", "y")),
        *((name, ctypes.c_uint64) for name in ("experts", "picks")),
        *((name, ctypes.c_void_p) for name in ("ids", "workspace")),
        ("processors", ctypes.c_int),
        ("shared_memory", ctypes.c_uint64),
        ("hopper", ctypes.c_int),
        ("layout", ctypes.c_int),
    )


@pytest.fixture(scope="module")
def library() -> Shim:
    return Shim(build([KERNELS / f"{name}.cu" for name in ("matmul", "fragments", "moe_sum")], KERNEL_INCLUDES))


@pytest.fixture
def shim(library: Shim) -> Iterator[Shim]:
    yield library
    library.free()


def multiply(
    shim: Shim,
    x: NDArray[Any],
    x_dtype: str,
    weights: list[Weights],
    precision: str,
    *,
    y_dtype: str = "float32",
    ids: NDArray[np.int32] | None = None,
    processors: int = 3,
    extra_stride: int = 0,
    shift: int = 0,
    fragments: NDArray[np.uint8] | None = None,
    functions: tuple[str, str] = ("cbq_cuda_product_workspace", "cbq_cuda_matmul"),
) -> tuple[NDArray[Any], str]:
    """y and the kernel's name. `weights` are one tensor's, or with ids those of each expert. x begins `shift` elements
    after a multiple of 16 bytes, its rows are `extra_stride` elements longer than k, and so are those of y than n.
    `fragments`: the weights packed, in memory of the device. `functions` are those of cuda/host/kernels.h for the
    workspace and for the product."""
    w = weights[0]
    (n, k), m = w.values.shape, len(x)
    rows = m if ids is None else ids.size
    blocks = np.concatenate([each.blocks.ravel() for each in weights])
    w_device = shim.upload(np.concatenate([np.full(MARGIN, 0xFF, np.uint8), blocks, np.full(MARGIN, 0xFF, np.uint8)]))
    x_padded = np.full((m, k + extra_stride), np.nan if x.dtype != np.uint16 else 0x7FC0, x.dtype)
    x_padded[:, :k] = x
    x_device = shim.upload(np.append(np.zeros(shift, x.dtype), x_padded))
    y = shim.empty((rows, n + extra_stride), np.uint16 if y_dtype == "bfloat16" else y_dtype)
    ids_device = None if ids is None else shim.upload(ids)
    p = Product(
        tag=cbquant._formats.get(w.fmt).tag,
        precision=PRECISIONS[precision],
        x_dtype=CODES[x_dtype],
        y_dtype=CODES[y_dtype],
        m=m,
        n=n,
        k=k,
        x_stride=k + extra_stride,
        y_stride=n + extra_stride,
        x=x_device.ctypes.data + shift * x.itemsize,
        w=w_device.ctypes.data + MARGIN if fragments is None else fragments.ctypes.data,
        y=y.ctypes.data,
        experts=len(weights) if ids is not None else 0,
        picks=ids.shape[1] if ids is not None else 1,
        ids=ids_device.ctypes.data if ids_device is not None else None,
        processors=processors,
        shared_memory=164 * 1024,
        layout=LAYOUTS.index("blocks" if fragments is None else "fragments"),
    )
    workspace_of = getattr(shim.library, functions[0])
    workspace_of.restype = ctypes.c_uint64
    workspace = shim.empty(workspace_of(ctypes.byref(p)), np.uint8)
    p.workspace = workspace.ctypes.data
    name = ctypes.c_char_p()
    shim.call(functions[1], ctypes.byref(p), None, ctypes.byref(name))
    assert name.value is not None
    unwritten = y[:, n:].view(np.uint8)
    assert (unwritten == 0xFF).all(), "stored past the end of a row"
    return y[:, :n].copy(), name.value.decode()


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(
    ("precision", "m", "kernel"), [("bf16", 5, "bf16_8"), ("bf16", 17, "bf16_64"), ("f32", 3, "f32_8")]
)
def test_every_format(shim: Shim, fmt: str, precision: str, m: int, kernel: str) -> None:
    f = cbquant._formats.get(fmt)
    k = 3 * f.elements if f.elements > 128 else 11 * f.elements
    w = make_weights(fmt, 70, k)
    for seed, dtype in enumerate(("float32", "bfloat16")):
        shim.seed(seed)
        x = make_x(m, k, dtype)
        y, name = multiply(shim, x, dtype, [w], precision)
        assert name == f"matmul_{fmt}_{kernel}"
        assert_close(y, "float32", exact(x, dtype, w.values, precision), k)


# m, n, k in blocks: tiles are 64 rows of W by 8 or 64 of x; one of everything, one less and one more than a tile.
SHAPES = [
    (1, 1, 1),
    (2, 63, 2),
    (7, 65, 3),
    (8, 64, 9),
    (9, 1, 1),
    (63, 66, 2),
    (64, 128, 1),
    (65, 3, 4),
    (130, 300, 1),
]


@pytest.mark.parametrize("fmt", ["q4_0", "q6_k", "nvfp4", "q1_0"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_odd_shapes(shim: Shim, fmt: str, precision: str, shape: tuple[int, int, int]) -> None:
    m, n, blocks = shape
    k = blocks * cbquant._formats.get(fmt).elements
    w, x = make_weights(fmt, n, k), make_x(m, k, "bfloat16")
    for seed in range(2):
        shim.seed(seed)
        y, _ = multiply(shim, x, "bfloat16", [w], precision, processors=1 + seed)
        assert_close(y, "float32", exact(x, "bfloat16", w.values, precision), k)


# Of plain types K is any number: one, up to and beyond a run of 32 and a step of 128, with and without whole eights.
PLAIN_SHAPES = [(1, 1, 1), (3, 66, 31), (9, 65, 8), (5, 70, 136), (64, 3, 300), (17, 130, 257), (70, 64, 384)]


@pytest.mark.parametrize("fmt", PLAIN)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", PLAIN_SHAPES, ids=str)
def test_plain_types(shim: Shim, fmt: str, precision: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    w = make_plain(fmt, n, k)
    for seed, dtype in enumerate(("bfloat16", "float32")):
        shim.seed(seed)
        x = make_x(m, k, dtype)
        y, name = multiply(shim, x, dtype, [w], precision, processors=1 + seed, extra_stride=8 * seed)
        assert name.startswith(f"matmul_{fmt}_{precision}_")
        assert_close(y, "float32", exact(x, dtype, w.values, precision), k)


def test_experts_of_a_plain_type(shim: Shim) -> None:
    weights = [make_plain("bf16", 70, 37, seed=e) for e in range(3)]
    x, ids = make_x(5, 37, "float16"), np.array([[0, 2], [2, -1], [1, 0], [2, 2], [-1, 0]], np.int32)
    y, _ = multiply(shim, x, "float16", weights, "bf16", ids=ids)
    for row, e in enumerate(ids.ravel()):
        token = x[row // 2 : row // 2 + 1]
        expected = exact(token, "float16", weights[max(e, 0)].values, "bf16")
        assert_close(y[row : row + 1], "float32", expected if e >= 0 else (0 * np.ones((1, 70)),) * 2, 37)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("y_dtype", CODES)
@pytest.mark.parametrize("x_dtype", CODES)
@pytest.mark.parametrize(("extra_stride", "shift"), [(0, 0), (8, 8), (5, 3)])
def test_types_strides_and_addresses(
    shim: Shim, x_dtype: str, y_dtype: str, precision: str, extra_stride: int, shift: int
) -> None:
    w, x = make_weights("q4_0", 67, 160), make_x(11, 160, x_dtype)
    options = {"y_dtype": y_dtype, "extra_stride": extra_stride, "shift": shift}
    y, _ = multiply(shim, x, x_dtype, [w], precision, **options)  # type: ignore[arg-type]
    assert_close(y, y_dtype, exact(x, x_dtype, w.values, precision), 160)


def test_bits_do_not_depend_on_the_schedule(shim: Shim) -> None:
    w, x = make_weights("q4_k", 200, 768), make_x(20, 768, "bfloat16")
    results = []
    for seed in range(20):
        shim.seed(seed)
        results.append(multiply(shim, x, "bfloat16", [w], "bf16", processors=5)[0].tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("processors", [1, 4, 7])
@pytest.mark.parametrize(
    ("experts", "tokens", "picks"), [(1, 1, 1), (3, 5, 2), (4, 40, 3), (9, 6, 1), (2, 150, 2)], ids=str
)
def test_experts(shim: Shim, experts: int, tokens: int, picks: int, processors: int, precision: str) -> None:
    n, k, rng = 70, 256, np.random.default_rng(experts)
    weights = [make_weights("iq4_xs", n, k, seed=e) for e in range(experts)]
    x = make_x(tokens, k, "bfloat16")
    ids = rng.integers(-1, experts, (tokens, picks)).astype(np.int32)
    ids[0, 0] = experts - 1
    ids[-1, -1] = experts + 5 if tokens > 1 else experts - 1  # no such expert
    shim.seed(processors)
    y, name = multiply(shim, x, "bfloat16", weights, precision, ids=ids, processors=processors, extra_stride=2)
    assert name.startswith("matmul_iq4_xs_")
    for row, e in enumerate(ids.ravel()):
        token = x[row // picks : row // picks + 1]
        if 0 <= e < experts:
            expected = exact(token, "bfloat16", weights[e].values, precision)
            assert_close(y[row : row + 1], "float32", expected, k)
        else:
            assert not y[row].any()


def test_one_expert_has_all_and_the_others_none(shim: Shim) -> None:
    weights = [make_weights("q8_0", 65, 64, seed=e) for e in range(5)]
    x, ids = make_x(30, 64, "float32"), np.full((30, 2), 3, np.int32)
    y, _ = multiply(shim, x, "float32", weights, "f32", ids=ids)
    assert_close(y[::2], "float32", exact(x, "float32", weights[3].values, "f32"), 64)
    assert y[::2].tobytes() == y[1::2].tobytes()


def test_no_expert_at_all(shim: Shim) -> None:
    weights = [make_weights("q8_0", 65, 64, seed=e) for e in range(2)]
    y, _ = multiply(shim, make_x(4, 64, "float32"), "float32", weights, "bf16", ids=np.full((4, 2), -1, np.int32))
    assert not y.any()


class WeightedSum(ctypes.Structure):
    """cbq_cuda_weighted_sum of cuda/host/kernels.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("z", "weights", "ids", "y")),
        ("y_dtype", ctypes.c_int),
        *((name, ctypes.c_uint64) for name in ("tokens", "picks", "n", "y_stride")),
    )


@pytest.mark.parametrize("y_dtype", CODES)
def test_weighted_sum(shim: Shim, y_dtype: str) -> None:
    tokens, picks, n, rng = 3, 4, 200, np.random.default_rng(0)
    z = rng.standard_normal((tokens, picks, n)).astype(np.float32)
    factors = rng.random((tokens, picks)).astype(np.float32)
    ids = np.array([[0, 1, 2, 3], [0, -1, 2, -1], [-1, -1, -1, -1]], np.int32)
    z[ids < 0] = np.nan  # not looked at
    arrays = [shim.upload(a) for a in (z, factors, ids)]
    y = shim.empty((tokens, n + 3), np.uint16 if y_dtype == "bfloat16" else y_dtype)
    s = WeightedSum(*(a.ctypes.data for a in (*arrays, y)), CODES[y_dtype], tokens, picks, n, n + 3)
    name = ctypes.c_char_p()
    shim.call("cbq_cuda_moe_sum", ctypes.byref(s), None, ctypes.byref(name))
    assert name.value == b"moe_sum"
    terms = np.where(ids[..., None] < 0, 0, factors[..., None].astype(np.float64) * np.nan_to_num(z))
    assert_close(y[:, :n], y_dtype, (terms.sum(1), np.abs(terms).sum(1)), picks)
    assert (y[:, n:].view(np.uint8) == 0xFF).all()
