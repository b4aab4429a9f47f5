"""Products for many tokens on Hopper, as nvcc compiled them: the host's own launches, in the interpreter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests import ptx
from tests.cuda import wgmma
from tests.cuda.products import assert_close, exact, make_weights, make_x
from tests.cuda.ptx_modules import kernels_ptx
from tests.cuda.shim import Shim, why_not
from tests.ptx.nvcc import find_nvcc

pytestmark = pytest.mark.skipif(
    why_not() is not None or find_nvcc() is None, reason=str(why_not() or "nvcc not found: nothing is compiled")
)


@pytest.fixture(scope="module")
def modules() -> list[ptx.Loaded]:
    sources = wgmma.few_formats("matmul_wgmma", wgmma.FORMATS), wgmma.few_formats("matmul", wgmma.FORMATS[:1])
    return [ptx.load(kernels_ptx(source, "sm_90a").read_text()) for source in sources]


@pytest.fixture
def shim(modules: list[ptx.Loaded], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shim]:
    monkeypatch.setenv("CBQUANT_SHIM_DEVICES", "9.0x3")
    shim = Shim(wgmma.library())
    shim.interpret(modules)
    yield shim
    shim.library.shim_launch_through(None)
    shim.free()


@pytest.mark.parametrize(
    ("fmt", "m", "n", "k"),
    [("q4_0", 65, 129, 352), ("q4_k", 1, 64, 1280), ("iq4_xs", 258, 130, 256), ("q8_0", 9, 300, 96)],
)
def test_products(shim: Shim, fmt: str, m: int, n: int, k: int) -> None:
    w, x = make_weights(fmt, n, k), make_x(m, k, "float32")
    y = wgmma.multiply(shim, x, "float32", [w], processors=2, extra_stride=3)
    assert_close(y, "float32", exact(x, "float32", w.values, "bf16"), k)


def test_experts(shim: Shim) -> None:
    weights = [make_weights("q4_0", 40, 96, seed=e) for e in range(3)]
    x = make_x(7, 96, "bfloat16")
    ids = np.array([[0, 2], [2, -1], [2, 0], [0, 5], [2, 2], [0, 0], [0, 2]], np.int32)  # 1 has none, 5 does not exist
    y = wgmma.multiply(shim, x, "bfloat16", weights, ids=ids, processors=3)
    for row, e in enumerate(ids.ravel()):
        if not 0 <= e < 3:
            assert not y[row].any()
            continue
        expected = exact(x[row // 2, None], "bfloat16", weights[e].values, "bf16")
        assert_close(y[row : row + 1], "float32", expected, 96)


@pytest.mark.parametrize("seed", range(3))
def test_warps_that_drift_apart(shim: Shim, modules: list[ptx.Loaded], seed: int) -> None:
    shim.interpret(modules, seed)
    w, x = make_weights("q4_0", 130, 1056), make_x(9, 1056, "bfloat16")
    y = wgmma.multiply(shim, x, "bfloat16", [w], processors=1)
    assert_close(y, "float32", exact(x, "bfloat16", w.values, "bf16"), 1056)


def test_no_product_and_sum_can_be_fused(modules: list[ptx.Loaded]) -> None:
    functions = modules[0].module.functions
    assert {name: f.contractible() for name, f in functions.items() if f.contractible()} == {}


@pytest.mark.parametrize(("architecture", "threads"), [("sm_80", 32), ("sm_90", 32), ("sm_90a", 384)])
def test_code_for_other_architectures_cannot_be_started(architecture: str, threads: int) -> None:
    """The host looks at the threads that a kernel allows; it takes 384."""
    text = kernels_ptx(wgmma.few_formats("matmul_wgmma", wgmma.FORMATS[:1]), architecture).read_text()
    _, _, kernel = text.partition(".entry cbq_matmul_q4_0_bf16_wgmma_256(")
    head, _, body = kernel.partition("{")
    assert f".maxntid {threads}" in head
    body = body.partition(".entry ")[0]
    assert ("trap;" in body, "wgmma.mma_async" in body) == (threads == 32, threads == 384)
