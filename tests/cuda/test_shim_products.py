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
    PRECISIONS,
    Weights,
    assert_close,
    exact,
    make_weights,
    make_x,
)
from tests.cuda.shim import KERNEL_INCLUDES, Shim, build, why_not
from tests.paths import BLOCK_FORMATS, ROOT

FORMATS = [f.name for f in BLOCK_FORMATS]
KERNELS = ROOT / "cuda" / "kernels"

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
    )


@pytest.fixture(scope="module")
def library() -> Shim:
    return Shim(build([KERNELS / "matmul.cu", KERNELS / "moe_sum.cu"], KERNEL_INCLUDES))


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
) -> tuple[NDArray[Any], str]:
    """y and the kernel's name. `weights` are one tensor's, or with ids those of each expert. x begins `shift` elements
    after a multiple of 16 bytes, its rows are `extra_stride` elements longer than k, and so are those of y than n."""
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
        w=w_device.ctypes.data + MARGIN,
        y=y.ctypes.data,
        experts=len(weights) if ids is not None else 0,
        picks=ids.shape[1] if ids is not None else 1,
        ids=ids_device.ctypes.data if ids_device is not None else None,
        processors=processors,
        shared_memory=164 * 1024,
    )
    shim.library.cbq_cuda_product_workspace.restype = ctypes.c_uint64
    workspace = shim.empty(shim.library.cbq_cuda_product_workspace(ctypes.byref(p)), np.uint8)
    p.workspace = workspace.ctypes.data
    name = ctypes.c_char_p()
    shim.call("cbq_cuda_matmul", ctypes.byref(p), None, ctypes.byref(name))
    assert name.value is not None
    unwritten = y[:, n:].view(np.uint8)
    assert (unwritten == 0xFF).all(), "stored past the end of a row"
    return y[:, :n].copy(), name.value.decode()


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(("precision", "m", "kernel"), [("bf16", 5, "bf16_8"), ("bf16", 17, "bf16_64"), ("f32", 3, "f32_8")])
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
