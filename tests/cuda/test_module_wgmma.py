"""Which products of cbquant.cuda take the kernel for Hopper, and that they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cbquant import cuda
from tests.cuda.product_inputs import RNG, K, N, error, exact, tensor
from tests.cuda.shim import Shim

X = RNG.standard_normal((3 * 70, K)).astype(np.float32)
IDS = np.arange(3 * 70, dtype=np.int32).reshape(70, 3) % 3


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch, shim: Shim) -> Iterator[None]:
    monkeypatch.setenv("CBQUANT_SHIM_DEVICES", "9.0x3")
    yield
    shim.library.shim_kernel_threads(1024)


def multiply(m: int, precision: str = "bf16", layout: str = "blocks") -> str:
    """The kernel that a product of m rows takes; its result is looked at."""
    t = tensor()
    y = cuda.matmul(X[:m], cuda.load(t, layout=layout), precision=precision)
    assert error(y, exact(X[:m], t)) < 1e-2
    return str(cuda.last_kernel())


@pytest.mark.parametrize(
    ("m", "precision", "kernel"),
    [(64, "bf16", "bf16_64"), (65, "bf16", "bf16_wgmma_256"), (210, "bf16", "bf16_wgmma_256"), (65, "f32", "f32_8")],
)
def test_products_of_many_rows(hopper: None, m: int, precision: str, kernel: str) -> None:
    assert multiply(m, precision) == f"matmul_q4_k_{kernel}"


def test_fragments_have_kernels_of_their_own(hopper: None) -> None:
    assert multiply(65, layout="fragments") == "matmul_q4_k_fragments_bf16_64"


def test_other_devices_have_other_kernels(native: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for device in ("8.0x3", "10.0x3", "12.0x3"):
        monkeypatch.setenv("CBQUANT_SHIM_DEVICES", device)
        assert multiply(65) == "matmul_q4_k_bf16_64"


def test_a_build_without_code_for_it_has_other_kernels(hopper: None, shim: Shim) -> None:
    shim.library.shim_kernel_threads(32)  # of cuda/kernels/matmul_wgmma.cu for other architectures
    assert multiply(65) == "matmul_q4_k_bf16_64"


def test_experts_have_it_for_many_tokens_on_average(hopper: None) -> None:
    t = tensor("q4_k", 3, N, K)
    for rows, kernel in ((70, "bf16_wgmma_256"), (64, "bf16_64")):
        y = np.asarray(cuda.moe_matmul(X[:rows], cuda.load(t, layout="blocks"), IDS[:rows]))
        expected = exact(X[:rows], t)  # [3, rows, N]
        picked = np.stack([expected[IDS[:rows, j], np.arange(rows)] for j in range(3)], axis=1)
        assert error(y, picked) < 1e-2
        assert str(cuda.last_kernel()) == f"matmul_q4_k_{kernel}"


def test_an_error_of_asking_is_an_error(hopper: None, shim: Shim) -> None:
    w = cuda.load(tensor(), layout="blocks")
    shim.library.shim_inject(b"cudaFuncGetAttributes", 0, 98)
    with pytest.raises(cuda.CudaError, match="cudaErrorInvalidDeviceFunction"):
        cuda.matmul(X[:65], w)
    shim.library.shim_inject(b"cudaFuncGetAttributes", 0, 0)
