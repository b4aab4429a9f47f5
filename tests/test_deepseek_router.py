"""cbquant.deepseek.router_sqrtsoftplus and route against float64."""

from __future__ import annotations

import decimal
import doctest
import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbquant import _core, deepseek
from cbquant.reference import deepseek as reference
from tests.deepseek_inputs import DTYPES, Array, assert_close, bits, draw, dtypes, same_bits, steps, strided
from tests.paths import PATHS, Path

SCORINGS = ["sqrtsoftplus", "sigmoid"]
EXPERTS = [1, 3, 16, 17, 31, 256, 288, 384, 512]


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def router(
    path: Path, logits: Array, bias: Array, scoring: str = "sqrtsoftplus", threads: int = 1
) -> tuple[Array, Array]:
    """By a set of kernels; the memory that the scores go to is filled with something else first."""
    outs = [np.full(logits.shape, 7, np.float32).astype(logits.dtype) for _ in range(2)]
    path.core.router(bits(logits), bits(bias), *map(bits, outs), scoring, threads, path.level)
    return outs[0], outs[1]


def route(path: Path, logits: Array, bias: Array, k: int, *options: object, threads: int = 1) -> tuple[Array, Array]:
    ids, weights = np.full((len(logits), k), -7, np.int32), np.zeros((len(logits), k), logits.dtype)
    path.core.route(bits(logits), bits(bias), ids, bits(weights), k, *options, threads=threads, isa=path.level)
    return ids, weights


def choice(biased: Array, k: int) -> Array:
    """The ids that float32 scores stand for: by falling score, ties to the lower id, NaN last."""
    keys = [sorted(range(len(row)), key=lambda i: (np.isnan(row[i]), -row[i], i)) for row in biased.tolist()]
    return np.array(keys, np.int32).reshape(biased.shape)[:, :k]


# --- the reference ---


def test_reference_scores_are_exact() -> None:
    x = np.array([-700.0, -50.0, -1.0, -1e-9, 0.0, 1e-9, 1.0, 50.0, 700.0])
    with decimal.localcontext() as context:
        context.prec = 400
        exact = [float((1 + decimal.Decimal(float(v)).exp()).ln().sqrt()) for v in x]
        sigmoid = [float(1 / (1 + (-decimal.Decimal(float(v))).exp())) for v in x]
    np.testing.assert_allclose(reference.router_sqrtsoftplus(x[None], np.zeros(9))[0][0], exact, rtol=1e-14)
    ids, weights = reference.route(x[None], np.zeros(9), 9, scoring="sigmoid")
    np.testing.assert_allclose(weights[0][np.argsort(ids[0])], sigmoid, rtol=1e-14)


# --- scores ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", EXPERTS)
def test_scores(path: Path, dtype: str, n: int) -> None:
    logits, bias = draw(n, (5, n), dtype, 4), draw(n, (n,), dtype)
    tolerance = 1e-5 if dtype == "float32" else None
    for actual, expected in zip(router(path, logits, bias), reference.router_sqrtsoftplus(logits, bias), strict=True):
        assert_close(actual, expected, tolerance)


def test_scores_of_every_size(path: Path) -> None:
    """To 4 units in the last place, from the smallest result that is a normal float up."""
    tiny = np.geomspace(1e-30, 170, 2000)
    x = np.concatenate([np.linspace(-174, 174, 20_001), np.geomspace(1e-30, 1e30, 2000), -tiny])
    logits = x.astype(np.float32)[None]
    expected = reference.router_sqrtsoftplus(logits, np.zeros(x.size))[0]
    unbiased, biased = router(path, logits, np.zeros(x.size, np.float32))
    assert np.abs(unbiased / expected - 1).max() <= 4 * 2.0**-24
    assert same_bits(unbiased, biased)


def test_sigmoid_of_every_size(path: Path) -> None:
    x = np.concatenate([np.linspace(-87, 87, 20_001), np.geomspace(1e-30, 1e30, 2000)]).astype(np.float32)
    expected = 1 / (1 + np.exp(-x.astype(np.float64)))
    actual, _ = router(path, x[None], np.zeros(x.size, np.float32), "sigmoid")
    assert np.abs(actual[0] / expected - 1).max() <= 4 * 2.0**-24


def test_no_logit_overflows(path: Path) -> None:
    x = np.array([[1e4, -1e4, 3e38, -3e38, np.inf, -np.inf, np.nan, 0.0, -0.0]], np.float32)
    zero = np.zeros(9, np.float32)
    unbiased, biased = router(path, x, zero)
    expected = np.array([[100, 0, np.sqrt(3e38), 0, np.inf, 0, np.nan, np.sqrt(np.log(2)), np.sqrt(np.log(2))]])
    np.testing.assert_allclose(unbiased, expected, rtol=1e-6)
    assert same_bits(unbiased[:, :6], biased[:, :6])
    sigmoid, _ = router(path, x, zero, "sigmoid")
    np.testing.assert_allclose(sigmoid, [[1, 0, 1, 0, 1, 0, np.nan, 0.5, 0.5]])


def test_infinite_biases(path: Path) -> None:
    bias = np.array([np.inf, -np.inf, np.nan, 0.0], np.float32)
    ids, weights = route(path, np.zeros((1, 4), np.float32), bias, 4)
    assert ids.tolist() == [[0, 3, 1, 2]]
    assert_close(weights, np.full((1, 4), np.sqrt(np.log(2))))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_shape_and_strides(data: st.DataObject) -> None:
    tokens, n = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 70))
    names = [data.draw(dtypes) for _ in range(2)]
    logits, bias = draw(1, (tokens, n), names[0]), draw(2, (n,), names[1])
    views = strided(logits, (data.draw(steps), data.draw(steps))), strided(bias, (data.draw(steps),))
    expected = reference.router_sqrtsoftplus(logits, bias)
    for actual, wanted in zip(deepseek.router_sqrtsoftplus(*views), expected, strict=True):
        assert actual.dtype == logits.dtype
        assert_close(actual, wanted)
    outs = [strided(np.zeros((tokens, n), np.float32), (data.draw(steps), 1)).astype(np.float32) for _ in range(2)]
    for actual, out, wanted in zip(deepseek.router_sqrtsoftplus(*views, out=outs), outs, expected, strict=True):
        assert actual is out
        assert_close(actual, wanted, 1e-5)


# --- choices ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scoring", SCORINGS)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 3), (17, 17), (256, 6), (256, 8), (288, 33), (384, 8), (512, 512)])
def test_choice(path: Path, dtype: str, scoring: str, n: int, k: int) -> None:
    logits, bias = draw(n, (9, n), dtype, 3), draw(n, (n,), "float32")
    ids, weights = route(path, logits, bias, k, 2.5, True, scoring)
    unbiased, biased = router(path, logits.astype(np.float32), bias, scoring)
    assert np.array_equal(ids, choice(biased, k))
    chosen = np.take_along_axis(unbiased, ids, axis=1).astype(np.float64)
    assert_close(weights, 2.5 * chosen / chosen.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("n", EXPERTS)
@pytest.mark.parametrize("normalize", [False, True])
def test_choice_is_that_of_float64(path: Path, n: int, normalize: bool) -> None:
    """With scores that no rounding brings together."""
    rng = np.random.default_rng(n)
    logits = np.array([rng.permutation(n) for _ in range(7)], np.float32) / 8
    bias = np.zeros(n, np.float32)
    k = min(n, 8)
    ids, weights = route(path, logits, bias, k, 1.5, normalize)
    expected_ids, expected = reference.route(logits, bias, k, 1.5, normalize)
    assert np.array_equal(ids, expected_ids)
    assert_close(weights, expected, 1e-6)


@pytest.mark.parametrize("n", [4, 33, 256])
def test_ties_go_to_the_lower_id_and_nan_comes_last(path: Path, n: int) -> None:
    rng = np.random.default_rng(n)
    logits = rng.choice(np.float32([-np.inf, -1, 0, 2, 2, np.inf, np.nan]), (200, n))
    bias = rng.choice(np.float32([0.0, -0.0, 1.0]), n)
    ids, _ = route(path, logits, bias, n)
    _, biased = router(path, logits, bias)
    assert np.array_equal(ids, choice(biased, n))
    for k in (1, 3):
        assert np.array_equal(route(path, logits, bias, k)[0], ids[:, :k])
    alike, _ = route(path, np.ones((1, n), np.float32), np.zeros(n, np.float32), n)
    assert alike[0].tolist() == list(range(n))


def test_both_zeros_tie(path: Path) -> None:
    logits = np.full((1, 40), -np.inf, np.float32)
    bias = np.where(np.arange(40) % 2, np.float32(0), np.float32(-0.0))
    assert route(path, logits, bias, 40)[0][0].tolist() == list(range(40))


def test_weights_of_nothing_stay_zero(path: Path) -> None:
    logits = np.full((2, 20), -np.inf, np.float32)
    ids, weights = route(path, logits, np.zeros(20, np.float32), 4, 2.0, True)
    assert ids.tolist() == [[0, 1, 2, 3]] * 2
    assert not weights.any()


def test_small_scores_keep_their_order(path: Path) -> None:
    """Softplus itself is 0 in float32 from -104 down; its root is not."""
    logits = -np.arange(100, 174, dtype=np.float32)[None, ::-1]
    ids, weights = route(path, logits.copy(), np.zeros(74, np.float32), 3, 1.0, True)
    assert ids.tolist() == [[73, 72, 71]]
    assert_close(weights, reference.route(logits, np.zeros(74), 3, normalize=True)[1], 1e-6)


def test_tokens_do_not_know_each_other(path: Path) -> None:
    logits, bias = draw(3, (50, 300), "bfloat16", 3), draw(4, (300,), "float32")
    ids, weights = route(path, logits, bias, 7, 1.0, True)
    scores = router(path, logits, bias)
    for t in range(50):
        alone = route(path, logits[t : t + 1], bias, 7, 1.0, True)
        assert np.array_equal(alone[0][0], ids[t])
        assert same_bits(alone[1][0], weights[t])
        for all_of_them, one in zip(scores, router(path, logits[t : t + 1], bias), strict=True):
            assert same_bits(all_of_them[t], one[0])


@pytest.mark.parametrize("threads", [2, 7])
def test_threads_change_nothing(path: Path, threads: int) -> None:
    logits, bias = draw(5, (900, 257), "float16", 3), draw(6, (257,), "float16")
    one, many = router(path, logits, bias), router(path, logits, bias, threads=threads)
    assert all(map(same_bits, one, many))
    ids, weights = route(path, logits, bias, 8, 1.0, True)
    more_ids, more_weights = route(path, logits, bias, 8, 1.0, True, threads=threads)
    assert np.array_equal(ids, more_ids)
    assert same_bits(weights, more_weights)


def test_the_public_functions_of_a_whole_prompt() -> None:
    logits, bias = draw(7, (4096, 256), "bfloat16", 2), draw(8, (256,), "float32", 0.1)
    ids, weights = deepseek.route(logits, bias, 8, 2.5, normalize=True)
    assert (ids.dtype, weights.dtype) == (np.int32, logits.dtype)
    assert_close(weights.astype(np.float32).sum(axis=1), np.full(4096, 2.5), 1e-2)
    unbiased, biased = deepseek.router_sqrtsoftplus(logits.astype(np.float32), bias)
    assert np.array_equal(ids, choice(biased, 8))
    out = np.empty((4096, 8), np.int32), np.empty((4096, 8), np.float32)
    returned = deepseek.route(logits, bias, 8, 2.5, normalize=True, out=out)
    assert returned[0] is out[0]
    assert returned[1] is out[1]
    assert np.array_equal(out[0], ids)
    chosen = np.take_along_axis(unbiased, ids, axis=1).astype(np.float64)
    assert_close(out[1], 2.5 * chosen / chosen.sum(axis=1, keepdims=True), 1e-6)


# --- errors ---

LOGITS, BIAS = np.zeros((2, 4), np.float32), np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("logits", "bias", "error", "message"),
    [
        (LOGITS[0], BIAS, ValueError, "logits: expected [T, E], got shape (4,)"),
        (LOGITS, BIAS[:3], ValueError, "bias: expected [E] with E = 4, got shape (3,)"),
        (LOGITS, LOGITS, ValueError, "bias: expected [E] with E = 4, got shape (2, 4)"),
        (LOGITS.astype(np.int8), BIAS, TypeError, "logits: expected float32, float16 or bfloat16, got int8"),
        (LOGITS, BIAS.tolist(), TypeError, "bias: expected float32, float16 or bfloat16, got float64"),
    ],
)
def test_wrong_inputs(logits: Array, bias: Array, error: type[Exception], message: str) -> None:
    for call in (deepseek.router_sqrtsoftplus, lambda x, b: deepseek.route(x, b, 2)):
        with pytest.raises(error) as raised:
            call(logits, bias)
        assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"k": 0}, ValueError, "k: expected 1 to 4, got 0"),
        ({"k": 5}, ValueError, "k: expected 1 to 4, got 5"),
        ({"k": 2.0}, TypeError, "k: expected a whole number from 1, got float"),
        ({"scale": np.nan}, ValueError, "scale: expected a finite number, got nan"),
        ({"scale": "2"}, TypeError, "scale: expected a number, got str"),
        ({"normalize": 1}, TypeError, "normalize: expected True or False, got int"),
        ({"scoring": "softmax"}, ValueError, "scoring: expected one of sqrtsoftplus, sigmoid, got 'softmax'"),
        ({"out": np.empty((2, 2))}, TypeError, "out: expected a tuple of 2 arrays, got ndarray"),
        ({"out": (None,)}, ValueError, "out: expected 2 arrays, got 1"),
        ({"out": ([], None)}, TypeError, "out[0]: expected an ndarray, got list"),
        ({"out": (np.empty((2, 2), np.int64), None)}, TypeError, "out[0]: expected dtype int32, got int64"),
        ({"out": (np.empty((2, 3), np.int32), None)}, ValueError, "out[0]: expected shape (2, 2), got (2, 3)"),
        ({"out": (np.empty((2, 4), np.int32)[:, ::2], None)}, ValueError, "out[0]: expected a C-contiguous, aligned,"),
        ({"out": (LOGITS.view(np.int32)[:, :2].reshape(4)[:4].reshape(2, 2), LOGITS[:, :2])}, ValueError,
         "out[1]: expected memory of its own, it overlaps logits"),
        ({"out": (None, np.empty((2, 3), np.float32))}, ValueError, "out[1]: expected shape (2, 2), got (2, 3)"),
        ({"threads": 513}, ValueError, "threads: expected 1 to 512, got 513"),
    ],
)  # fmt: skip
def test_wrong_options(options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        deepseek.route(LOGITS, BIAS, **{"k": 2, **options})  # type: ignore[arg-type]
    assert str(raised.value).startswith(message)


def test_outputs_may_not_overlap_each_other() -> None:
    memory = np.empty((2, 2, 4), np.float32)
    with pytest.raises(ValueError, match=r"out\[1\]: expected memory of its own, it overlaps out\[0\]"):
        deepseek.router_sqrtsoftplus(LOGITS, BIAS, out=(memory[0], memory[0]))
    first, second = deepseek.router_sqrtsoftplus(LOGITS, BIAS, out=(memory[0], memory[1]))
    assert first.base is memory
    assert second.base is memory
    shared = np.empty(20, np.float32)
    ids = shared[:4].view(np.int32).reshape(2, 2)
    with pytest.raises(ValueError, match=r"out\[1\]: expected memory of its own, it overlaps out\[0\]"):
        deepseek.route(LOGITS, BIAS, 2, out=(ids, shared[2:6].reshape(2, 2)))


def test_the_core_checks_too() -> None:
    ids, weights = np.empty((2, 2), np.int32), np.empty((2, 2), np.float32)
    for message, call in {
        "logits: expected two dimensions, got 1": lambda: _core.router(BIAS, BIAS, BIAS, BIAS),
        "bias: expected shape (4,), got (3,)": lambda: _core.router(LOGITS, BIAS[:3], LOGITS, LOGITS),
        "out[1]: expected shape (2, 4), got (4,)": lambda: _core.router(LOGITS, BIAS, LOGITS, BIAS),
        "bias: expected a stride of 4 bytes along axis 0, got 8": lambda: _core.router(
            LOGITS, np.zeros(8, np.float32)[::2], LOGITS, LOGITS
        ),
        "k: expected 1 to 4, got 5": lambda: _core.route(LOGITS, BIAS, ids, weights, 5),
        "out[1]: expected shape (2, 3), got (2, 2)": lambda: _core.route(LOGITS, BIAS, ids, weights, 3),
        "out[0]: expected 2 rows of 8 bytes, got 8 bytes": lambda: _core.route(LOGITS, BIAS, ids[:1], weights, 2),
        "scoring: expected sqrtsoftplus or sigmoid, got 'x'": lambda: _core.route(
            LOGITS, BIAS, ids, weights, 2, 1.0, False, "x"
        ),
    }.items():
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            call()
        assert str(raised.value) == message
    with pytest.raises(TypeError, match=r"out\[0\]: expected aligned int32, got dtype float32"):
        _core.route(LOGITS, BIAS, weights, weights, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["cbquant.deepseek._router", "cbquant.reference.deepseek._router"])
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
