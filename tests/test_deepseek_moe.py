"""cbquant.deepseek.moe_ffn against float64, and its elementwise part by every set of kernels."""

from __future__ import annotations

import doctest
import importlib

import numpy as np
import pytest

import cbquant
from cbquant import _core, deepseek
from cbquant.reference import deepseek as reference
from tests.deepseek_inputs import DTYPES, Array, assert_close, draw, same_bits, strided
from tests.paths import PATHS, Path

LENGTHS = [0, 1, 3, 4, 15, 16, 17, 100]
E, F, K, N = 5, 64, 96, 32


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def silu(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-x.astype(np.float64)))


PLAIN = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def experts(fmt: str, shape: tuple[int, int, int], seed: int) -> cbquant.QuantTensor:
    values = draw(seed, shape) / 4
    blocks = values.astype(DTYPES[PLAIN[fmt]]).view(np.uint8) if fmt in PLAIN else cbquant.quantize(values, fmt)
    return cbquant.QuantTensor(blocks, fmt, shape)


def layer(gate: str = "q8_0", up: str = "q8_0", down: str = "q8_0") -> tuple[cbquant.QuantTensor, ...]:
    return experts(gate, (E, F, K), 1), experts(up, (E, F, K), 2), experts(down, (E, N, F), 3)


def tokens(count: int, k: int = 2, dtype: str = "float32") -> tuple[Array, Array, Array]:
    """x, ids and weights; a token's experts differ."""
    rng = np.random.default_rng(count)
    ids = np.array([rng.permutation(E)[:k] for _ in range(count)]).reshape(count, k)
    return draw(count, (count, K), dtype), ids, rng.random((count, k), np.float32)


def expected(x: Array, weights_of: tuple[cbquant.QuantTensor, ...], ids: Array, weights: Array) -> Array:
    return reference.moe_ffn(x, *(t.dequant() for t in weights_of), ids, weights)


# --- the elementwise part ---


@pytest.mark.parametrize("n", LENGTHS)
def test_swiglu(path: Path, n: int) -> None:
    gate, up = draw(n, (n,), scale=5), draw(n + 1, (n,))
    out = np.full(n, np.nan, np.float32)
    path.core.swiglu(gate, up, out, 1, path.level)
    assert_close(out, silu(gate) * up, 1e-6)
    path.core.swiglu(gate, up, gate, 1, path.level)
    assert same_bits(gate, out)


def test_swiglu_of_every_size(path: Path) -> None:
    gate = np.concatenate([np.linspace(-87, 87, 20_001), [1e4, -1e4, 3e38, -3e38, 0.0]]).astype(np.float32)
    out = np.empty_like(gate)
    path.core.swiglu(gate, np.ones_like(gate), out, 1, path.level)
    wanted = silu(gate)
    large = np.abs(wanted) > 1e-37
    assert np.abs(out[large] / wanted[large] - 1).max() <= 5 * 2.0**-24
    assert np.abs(out[~large]).max() < 2e-37


@pytest.mark.parametrize("threads", [2, 7])
def test_swiglu_does_not_depend_on_threads(path: Path, threads: int) -> None:
    gate, up = draw(1, (300, 1001)), draw(2, (300, 1001))
    one, many = np.empty_like(gate), np.empty_like(gate)
    path.core.swiglu(gate, up, one, 1, path.level)
    path.core.swiglu(gate, up, many, threads, path.level)
    assert same_bits(one, many)


def test_swiglu_checks_its_arguments() -> None:
    a = np.zeros((2, 4), np.float32)
    for message, arguments in {
        "up: expected shape (2, 4), got (4,)": (a, a[0], a),
        "out: expected shape (2, 4), got (1, 4)": (a, a, a[:1]),
        "gate: expected a C-contiguous, aligned float32 array": (a.astype(np.float16), a, a),
        "up: expected a C-contiguous, aligned float32 array": (a, a.T.copy().T, a),
        "out: expected a C-contiguous, aligned float32 array": (a, a, strided(a, (2, 1))),
    }.items():
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            _core.swiglu(*arguments)
        assert str(raised.value) == message


# --- the layer ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 2, 7, 40])
def test_tokens(dtype: str, count: int) -> None:
    weights_of = layer()
    x, ids, weights = tokens(count, 2, dtype)
    actual = deepseek.moe_ffn(x, *weights_of, ids, weights)
    assert actual.dtype == x.dtype
    assert_close(actual, expected(x, weights_of, ids, weights), 2e-5 if dtype == "float32" else None)


@pytest.mark.parametrize("formats", [("q4_0", "q5_1", "mxfp4"), ("mxfp4", "mxfp4", "q8_0"), ("f16", "bf16", "f32")])
def test_each_has_a_format_of_its_own(formats: tuple[str, str, str]) -> None:
    shapes = (E, F, K), (E, F, K), (E, N, F)
    weights_of = tuple(experts(fmt, shape, i) for i, (fmt, shape) in enumerate(zip(formats, shapes, strict=True)))
    x, ids, weights = tokens(9, 3)
    assert_close(deepseek.moe_ffn(x, *weights_of, ids, weights), expected(x, weights_of, ids, weights), 2e-5)


def test_blocks_of_256() -> None:
    gate, up = experts("q4_k", (3, 256, 512), 1), experts("q5_k", (3, 256, 512), 2)
    down = experts("q6_k", (3, 64, 256), 3)
    x, ids = draw(4, (5, 512)) / 8, np.array([[0, 2], [1, 0], [2, 1], [0, 1], [1, 2]])
    weights = np.full((5, 2), 0.5, np.float32)
    assert_close(deepseek.moe_ffn(x, gate, up, down, ids, weights), expected(x, (gate, up, down), ids, weights))


def test_arrays_and_bytes() -> None:
    weights_of = layer()
    x, ids, weights = tokens(6)
    wanted = deepseek.moe_ffn(x, *weights_of, ids, weights)
    raw = [t.raw for t in weights_of]
    assert same_bits(deepseek.moe_ffn(x, *raw, ids, weights, fmt="q8_0"), wanted)
    plain = [t.dequant("bfloat16") for t in weights_of]
    assert_close(deepseek.moe_ffn(x, *plain, ids, weights), expected(x, weights_of, ids, weights), 5e-2)
    turned = [np.asfortranarray(t.dequant()) for t in weights_of]
    assert_close(deepseek.moe_ffn(x, *turned, ids, weights), expected(x, weights_of, ids, weights), 2e-5)


@pytest.mark.parametrize(("precision", "error"), [("bf16", 1e-2), ("q8", 3e-2), ("q16", 3e-4)])
def test_precisions(precision: str, error: float) -> None:
    weights_of = layer()
    x, ids, weights = tokens(8)
    actual = deepseek.moe_ffn(x, *weights_of, ids, weights, precision=precision)
    wanted = expected(x, weights_of, ids, weights)
    assert np.linalg.norm(actual - wanted) <= error * np.linalg.norm(wanted)
    assert not same_bits(actual, deepseek.moe_ffn(x, *weights_of, ids, weights))


@pytest.mark.parametrize("limit", [0.01, 0.5, 1e9])
def test_limit(limit: float) -> None:
    weights_of = layer()
    x, ids, weights = tokens(8)
    decoded = [t.dequant() for t in weights_of]
    actual = deepseek.moe_ffn(x, *weights_of, ids, weights, limit=limit)
    assert_close(actual, reference.moe_ffn(x, *decoded, ids, weights, limit=limit), 2e-5)
    assert same_bits(actual, deepseek.moe_ffn(x, *weights_of, ids, weights)) == (limit == 1e9)
    x[0, 0] = np.nan
    assert (
        np.isnan(deepseek.moe_ffn(x, *weights_of, ids, weights, limit=limit)).any(axis=1).tolist()
        == [True] + [False] * 7
    )


def test_no_expert_and_one_expert_twice() -> None:
    weights_of = layer()
    x, _, weights = tokens(6, 3)
    ids = np.array([[-1, -1, -1], [0, -1, 2], [3, 3, -1], [4, 4, 4], [1, 0, 1], [2, 3, 4]])
    weights[0] = np.nan  # of experts that are not there
    actual = deepseek.moe_ffn(x, *weights_of, ids, weights)
    assert not actual[0].any()
    assert_close(actual, expected(x, weights_of, ids, np.where(ids < 0, 0, weights)), 2e-5)


def test_experts_that_nobody_chose_are_not_read() -> None:
    weights_of = [t.raw.copy() for t in layer()]
    x, ids, weights = tokens(6)
    ids = np.where(ids == 3, 0, ids)
    clean = deepseek.moe_ffn(x, *weights_of, ids, weights, fmt="q8_0")
    for blocks in weights_of:
        blocks[3] = 0xFF  # NaN
    assert same_bits(deepseek.moe_ffn(x, *weights_of, ids, weights, fmt="q8_0"), clean)
    ids[2, 1] = 3
    assert np.isnan(deepseek.moe_ffn(x, *weights_of, ids, weights, fmt="q8_0")).any(axis=1).tolist() == [
        row == 2 for row in range(6)
    ]


def test_routed_tokens() -> None:
    """From logits to the layer's output."""
    weights_of = layer()
    x, logits = draw(1, (20, K), "bfloat16"), draw(2, (20, E))
    ids, weights = deepseek.route(logits, np.zeros(E, np.float32), 2, 1.5, normalize=True)
    actual = deepseek.moe_ffn(x, *weights_of, ids, weights)
    ids, weights = reference.route(logits, np.zeros(E), 2, 1.5, normalize=True)
    assert_close(actual, expected(x, weights_of, ids, weights))


def test_it_is_made_of_moe_matmul() -> None:
    weights_of = layer()
    x, ids, weights = tokens(30)
    gate, up = (cbquant.moe_matmul(x, t, ids) for t in weights_of[:2])
    inner = np.empty_like(gate)
    _core.swiglu(gate, up, inner)
    flat = ids.reshape(-1, 1)
    parts = cbquant.moe_matmul(inner.reshape(-1, F), weights_of[2], flat, weights.reshape(-1, 1))
    total = parts.reshape(30, 2, N).sum(axis=1, dtype=np.float64)
    assert_close(deepseek.moe_ffn(x, *weights_of, ids, weights), total, 1e-5)


@pytest.mark.parametrize("threads", [2, 7])
def test_threads_change_nothing(threads: int) -> None:
    gate, up = experts("q4_0", (2, 1024, 512), 1), experts("q4_0", (2, 1024, 512), 2)
    down = experts("q4_0", (2, 512, 1024), 3)
    x, ids = draw(4, (70, 512)) / 8, np.random.default_rng(0).integers(0, 2, (70, 1))
    weights = np.ones((70, 1), np.float32)
    one = deepseek.moe_ffn(x, gate, up, down, ids, weights, threads=1)
    assert same_bits(deepseek.moe_ffn(x, gate, up, down, ids, weights, threads=threads), one)


@pytest.mark.parametrize("dtype", [*DTYPES, "uint16"])
def test_out(dtype: str) -> None:
    weights_of = layer()
    x, ids, weights = tokens(7)
    out = np.empty((7, N), DTYPES.get(dtype, np.uint16))
    assert deepseek.moe_ffn(x, *weights_of, ids, weights, out=out) is out
    wanted = deepseek.moe_ffn(x, *weights_of, ids, weights)
    kind = DTYPES["bfloat16"] if dtype == "uint16" else DTYPES[dtype]
    assert same_bits(out.view(kind), wanted.astype(kind))


def test_inputs_at_strides() -> None:
    weights_of = layer()
    x, ids, weights = tokens(7)
    wanted = deepseek.moe_ffn(x, *weights_of, ids, weights)
    views = strided(x, (2, 3)), *weights_of, np.asfortranarray(ids), strided(weights, (-1, 2))
    assert same_bits(deepseek.moe_ffn(*views), wanted)


# --- errors ---

X, IDS, WEIGHTS = tokens(2)
GATE, UP, DOWN = layer()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": X[:, :50]}, ValueError, "gate: expected [E, F, K] with K = 50, got shape (5, 64, 96)"),
        ({"x": X[0]}, ValueError, "x: expected [T, K], got shape (96,)"),
        ({"x": X.astype(np.float64)}, TypeError, "x: expected float32, float16 or bfloat16, got float64"),
        ({"up": DOWN}, ValueError, "up: expected [E, F, K] with E = 5, F = 64, K = 96, got shape (5, 32, 64)"),
        ({"down": UP}, ValueError, "down: expected [E, N, F] with E = 5, F = 64, got shape (5, 64, 96)"),
        ({"gate": GATE[0]}, ValueError, "gate: expected 3 dimensions (E, F, K), got shape (64, 96)"),
        ({"gate": GATE.raw}, TypeError, "fmt: expected the name of a format, for gate is no QuantTensor"),
        ({"gate": GATE.raw, "fmt": "q9"}, ValueError, "unknown format 'q9'"),
        ({"ids": IDS + 5}, ValueError, "ids: expected -1 to 4, got"),
        ({"ids": IDS[:1]}, ValueError, "ids: expected [T, k] with T = 2 rows, as x has, got shape (1, 2)"),
        ({"ids": WEIGHTS}, TypeError, "ids: expected integers, got dtype float32"),
        ({"weights": WEIGHTS[:, :1]}, ValueError, "weights: expected the shape of ids, (2, 2), got (2, 1)"),
        ({"precision": "f64"}, ValueError, "precision: expected one of f32, bf16, q8, q16, got 'f64'"),
        ({"limit": 0}, ValueError, "limit: expected a number above 0, got 0.0"),
        ({"limit": np.nan}, ValueError, "limit: expected a finite number, got nan"),
        ({"limit": "10"}, TypeError, "limit: expected a number, got str"),
        ({"precision": X}, TypeError, "precision: expected one of f32, bf16, q8, q16, got ndarray"),
        ({"threads": X}, TypeError, "threads: expected a whole number from 1, got ndarray"),
        ({"out": np.empty((2, 31), np.float32)}, ValueError, "out: expected shape (2, 32), got (2, 31)"),
        ({"out": X[:, :32]}, ValueError, "out: expected a C-contiguous array, got a strided one"),
        ({"out": X.reshape(-1)[:64].reshape(2, 32)}, ValueError, "out: expected memory of its own, it overlaps x"),
        ({"threads": 0}, ValueError, "threads: expected 1 to 512, got 0"),
    ],
)  # fmt: skip
def test_wrong_arguments(change: dict[str, object], error: type[Exception], message: str) -> None:
    arguments = {"x": X, "gate": GATE, "up": UP, "down": DOWN, "ids": IDS, "weights": WEIGHTS, **change}
    with pytest.raises(error) as raised:
        deepseek.moe_ffn(**arguments)  # type: ignore[arg-type]
    assert message in str(raised.value)


def test_out_stays_as_it_was_where_a_product_fails() -> None:
    x = X.copy()
    x[1, 5] = np.inf
    out = np.full((2, N), 3, np.float32)
    with pytest.raises(ValueError, match="x: expected finite numbers"):
        deepseek.moe_ffn(x, GATE, UP, DOWN, IDS, WEIGHTS, precision="q8", out=out)
    assert (out == 3).all()


@pytest.mark.parametrize("name", ["cbquant.deepseek._moe"])
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
