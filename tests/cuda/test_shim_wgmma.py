"""Products for many tokens on Hopper, as the host starts them: compiled by g++ and run with threads on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import cbquant
from tests.cuda import wgmma
from tests.cuda.products import assert_close, exact, make_weights, make_x
from tests.cuda.shim import Shim, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture
def shim(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shim]:
    monkeypatch.setenv("CBQUANT_SHIM_DEVICES", "9.0x3")
    shim = Shim(wgmma.library())
    yield shim
    shim.free()


# m, n, k in blocks of 256 elements or their like: tiles are 128 rows of W by 256 of x, steps 256 elements, chunks 64.
SHAPES = [(1, 1, 32), (65, 64, 256), (130, 129, 1024), (257, 300, 512), (8, 127, 288), (9, 128, 96), (255, 40, 800)]


@pytest.mark.parametrize("fmt", wgmma.FORMATS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_odd_shapes(shim: Shim, fmt: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    elements = cbquant._formats.get(fmt).elements
    k = -(-k // elements) * elements
    w, x = make_weights(fmt, n, k), make_x(m, k, "bfloat16")
    shim.seed(m)
    y = wgmma.multiply(shim, x, "bfloat16", [w], processors=1 + m % 4)
    assert_close(y, "float32", exact(x, "bfloat16", w.values, "bf16"), k)


@pytest.mark.parametrize(
    ("x_dtype", "y_dtype", "extra_stride", "shift"),
    [
        ("float32", "bfloat16", 8, 8),
        ("float16", "float16", 0, 0),
        ("bfloat16", "float32", 5, 3),
        ("float32", "float32", 5, 1),
    ],
)
def test_types_strides_and_addresses(shim: Shim, x_dtype: str, y_dtype: str, extra_stride: int, shift: int) -> None:
    w, x = make_weights("q4_0", 67, 160), make_x(11, 160, x_dtype)
    y = wgmma.multiply(shim, x, x_dtype, [w], y_dtype=y_dtype, extra_stride=extra_stride, shift=shift)
    assert_close(y, y_dtype, exact(x, x_dtype, w.values, "bf16"), 160)


def test_bits_do_not_depend_on_the_schedule(shim: Shim) -> None:
    w, x = make_weights("q4_0", 200, 768), make_x(20, 768, "bfloat16")
    results = []
    for seed in range(8):
        shim.seed(seed)
        results.append(wgmma.multiply(shim, x, "bfloat16", [w], processors=5).tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize(
    ("experts", "tokens", "picks", "processors"), [(1, 1, 1, 1), (9, 6, 1, 4), (3, 150, 3, 3)], ids=str
)
def test_experts(shim: Shim, experts: int, tokens: int, picks: int, processors: int) -> None:
    n, k, rng = 70, 256, np.random.default_rng(experts)
    weights = [make_weights("iq4_xs", n, k, seed=e) for e in range(experts)]
    x = make_x(tokens, k, "bfloat16")
    ids = rng.integers(-1, experts, (tokens, picks)).astype(np.int32)
    ids[ids == 1] = 0  # an expert without tokens
    ids[0, 0] = experts - 1
    ids[-1, -1] = experts + 5 if tokens > 1 else experts - 1  # no such expert
    shim.seed(processors)
    y = wgmma.multiply(shim, x, "bfloat16", weights, ids=ids, processors=processors, extra_stride=2)
    for row, e in enumerate(ids.ravel()):
        token = x[row // picks : row // picks + 1]
        if 0 <= e < experts:
            expected = exact(token, "bfloat16", weights[e].values, "bf16")
            assert_close(y[row : row + 1], "float32", expected, k)
        else:
            assert not y[row].any()


def test_no_expert_at_all(shim: Shim) -> None:
    weights = [make_weights("q8_0", 65, 64, seed=e) for e in range(2)]
    y = wgmma.multiply(shim, make_x(4, 64, "float32"), "float32", weights, ids=np.full((4, 2), -1, np.int32))
    assert not y.any()
