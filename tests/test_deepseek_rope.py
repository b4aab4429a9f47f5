"""cbquant.deepseek.partial_rope against float64."""

from __future__ import annotations

import decimal
import doctest
import importlib

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbquant import _core, deepseek
from cbquant.reference import deepseek as reference
from tests.deepseek_inputs import DTYPES, Array, assert_close, bits, draw, dtypes, same_bits, steps, strided
from tests.paths import PATHS, Path

PAIRS = ["split", "interleaved"]
POSITIONS = np.array([0, 1, 63, 64, 65, 12_345, 1_000_000, 999_999, -1, -64, 131_071])
THETAS = [10_000.0, 160_000.0]


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def rope(
    path: Path,
    x: Array,
    positions: Array,
    n_rot: int = 64,
    theta: float = 10_000.0,
    inverse: bool = False,
    pairs: str = "split",
    out: Array | None = None,
    threads: int = 1,
    stream: int = -1,
    frequencies: Array | None = None,
) -> Array:
    """By a set of kernels; the memory that the result goes to is filled with something else first."""
    result = np.full(x.shape, 7, np.float32).astype(x.dtype) if out is None else out
    options = (n_rot, theta, inverse, pairs == "interleaved", threads, path.level, stream, frequencies)
    path.core.partial_rope(bits(x), positions.astype(np.float64), bits(result), *options)
    return result


# --- the reference ---


def test_reference_angles_are_exact() -> None:
    """Cosines and sines of position 1 000 000 by fractions of a turn, in 60 digits."""
    pi = decimal.Decimal("3.14159265358979323846264338327950288419716939937510582097494")
    with decimal.localcontext() as context:
        context.prec = 60
        for pair in (0, 1, 17, 31):
            rate = decimal.Decimal(160_000) ** (decimal.Decimal(-2 * pair) / 64)
            angle = float(decimal.Decimal(1_000_000) * rate % (2 * pi))
            x = np.zeros((1, 64))
            x[0, pair] = 1
            turned = reference.partial_rope(x, [1_000_000], theta=160_000.0)[0]
            np.testing.assert_allclose(turned[[pair, pair + 32]], [np.cos(angle), np.sin(angle)], atol=1e-9)


# --- the operator ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("theta", THETAS)
def test_heads(path: Path, dtype: str, pairs: str, inverse: bool, theta: float) -> None:
    x = draw(1, (len(POSITIONS), 3, 512), dtype)
    actual = rope(path, x, POSITIONS, 64, theta, inverse, pairs)
    assert_close(actual, reference.partial_rope(x, POSITIONS, 64, theta, inverse, pairs))
    assert same_bits(actual[..., :448], x[..., :448])


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize(("dims", "n_rot"), [(2, 2), (64, 64), (67, 64), (100, 6), (40, 34), (576, 64), (200, 130)])
def test_head_dims(path: Path, pairs: str, dims: int, n_rot: int) -> None:
    for shape in [(11, dims), (11, 1, dims), (2, 11, 3, dims), (2, 3, 11, 2, dims)]:
        for dtype in DTYPES:
            x = draw(2, shape, dtype)
            expected = reference.partial_rope(x, POSITIONS, n_rot, 10_000.0, False, pairs)
            assert_close(rope(path, x, POSITIONS, n_rot, 10_000.0, False, pairs), expected)


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("theta", THETAS)
def test_position_one_million_is_as_exact_as_position_one(path: Path, pairs: str, theta: float) -> None:
    """All of the error is that of float32."""
    x = draw(3, (2, 512))
    for positions in ([1, 2], [1_000_000, 999_937], [-1_000_000, 100_000_007]):
        expected = reference.partial_rope(x, positions, 64, theta, False, pairs)
        assert_close(rope(path, x, np.array(positions), 64, theta, False, pairs), expected, 1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pairs", PAIRS)
def test_the_inverse_gives_x_back(path: Path, dtype: str, pairs: str) -> None:
    positions = np.array([1_000_000, 5, 999_999])
    x = draw(4, (3, 2, 512), dtype)
    turned = rope(path, x, positions, 64, 160_000.0, False, pairs)
    assert np.abs(turned.astype(np.float32) - x.astype(np.float32)).max() > 0.5
    tolerance = 1e-6 if dtype == "float32" else None
    assert_close(rope(path, turned, positions, 64, 160_000.0, True, pairs), x.astype(np.float64), tolerance)


def test_positions_that_are_not_whole(path: Path) -> None:
    x = draw(5, (6, 64))
    positions = np.array([0.5, 63.99, 1e6 + 0.25, -1e-20, -64.5, -0.0])
    assert_close(rope(path, x, positions), reference.partial_rope(x, positions), 1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("shape", [(11, 100), (3, 11, 2, 512)], ids=str)
def test_in_place(path: Path, dtype: str, pairs: str, shape: tuple[int, ...]) -> None:
    x = draw(6, shape, dtype)
    expected = rope(path, x, POSITIONS, 34, 10_000.0, False, pairs)
    assert same_bits(rope(path, x, POSITIONS, 34, 10_000.0, False, pairs, out=x), expected)


def test_in_place_by_the_public_function() -> None:
    x = draw(7, (4, 2, 100), "bfloat16")
    expected = deepseek.partial_rope(x, range(4), 64)
    for out in (x, x.view(np.uint16)[:]):
        memory = x.copy()
        assert deepseek.partial_rope(x, range(4), 64, out=out) is out
        assert same_bits(x, expected)
        x[...] = memory
    wide = draw(8, (4, 2, 200), "bfloat16")
    view = wide[:, :, 50:150]
    expected, around = deepseek.partial_rope(view, range(4), 64), wide.copy()
    assert deepseek.partial_rope(view, range(4), 64, out=view) is view
    assert same_bits(view, expected)
    around[:, :, 50:150] = view
    assert same_bits(wide, around)


def test_tokens_and_batches_do_not_know_each_other(path: Path) -> None:
    positions = np.arange(900, 1030)
    for pairs in PAIRS:
        x = draw(9, (2, 130, 3, 80), "float16")
        together = rope(path, x, positions, 64, 10_000.0, False, pairs)
        for b, t in [(0, 0), (1, 17), (0, 129), (1, 64)]:
            alone = rope(path, x[b, t : t + 1], positions[t : t + 1], 64, 10_000.0, False, pairs)
            assert same_bits(alone[0], together[b, t])
        assert same_bits(rope(path, x[0, :, 1], positions, 64, 10_000.0, False, pairs), together[0, :, 1])
        shuffled = np.random.default_rng(0).permutation(130)
        again = rope(path, x[:, shuffled], positions[shuffled], 64, 10_000.0, False, pairs)
        assert same_bits(again, together[:, shuffled])


@pytest.mark.parametrize("threads", [2, 7])
@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_stores_past_the_cache_change_nothing(path: Path, threads: int, dtype: str) -> None:
    positions = np.arange(150) * 7
    x = draw(10, (2, 150, 3, 333), dtype)
    for pairs in PAIRS:
        expected = rope(path, x, positions, 64, 10_000.0, False, pairs)
        for stream in (0, 1):
            assert same_bits(rope(path, x, positions, 64, 10_000.0, False, pairs, None, threads, stream), expected)
        copy = x.copy()
        assert same_bits(rope(path, copy, positions, 64, 10_000.0, False, pairs, copy, threads), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("offset", "gap"), [(0, 0), (4, 0), (12, 7), (60, 32), (1, 0)])
def test_nothing_around_an_output_is_touched(path: Path, dtype: str, offset: int, gap: int) -> None:
    x, positions = draw(1, (5, 3, 150), dtype), np.arange(5)
    size, row = x.dtype.itemsize, 150 + gap
    memory = np.full(15 * row * size + 192, 0xA5, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    out = np.ndarray(x.shape, x.dtype, memory.data, start, (3 * row * size, row * size, size))
    assert same_bits(rope(path, x, positions, out=out, stream=1), rope(path, x, positions))
    gaps = np.ones(memory.size, bool)
    for i in range(15):
        begin = start + i * row * size
        gaps[begin : begin + 150 * size] = False
    assert (memory[gaps] == 0xA5).all()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_shape_and_strides(data: st.DataObject) -> None:
    tokens, dims = data.draw(st.integers(0, 6)), data.draw(st.integers(2, 90))
    n_rot = 2 * data.draw(st.integers(1, dims // 2))
    shape = data.draw(
        st.sampled_from([(tokens, dims), (tokens, 2, dims), (3, tokens, 2, dims), (2, 0, tokens, 2, dims)])
    )
    name, pairs, inverse = data.draw(dtypes), data.draw(st.sampled_from(PAIRS)), data.draw(st.booleans())
    x = draw(1, shape, name)
    positions = np.array([data.draw(st.integers(-(10**6), 10**6)) for _ in range(tokens)], int)
    options = (n_rot, 10_000.0, inverse, pairs)
    expected = reference.partial_rope(x, positions, *options)
    view = strided(x, tuple(data.draw(steps) for _ in shape))
    actual = deepseek.partial_rope(view, positions.astype(data.draw(st.sampled_from(["i8", "i4", "f8"]))), *options)
    assert actual.dtype == x.dtype
    assert_close(actual, expected)
    out = strided(np.zeros(shape, x.dtype), (*(data.draw(steps) for _ in shape[1:]), 1))
    assert deepseek.partial_rope(view, positions, *options, out=out) is out
    assert same_bits(out, actual)


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_frequencies(path: Path, dtype: str, pairs: str, inverse: bool) -> None:
    """In any order and of any sign, 0 included; positions that are and that are not in a table."""
    x, positions = draw(12, (len(POSITIONS), 2, 100), dtype), POSITIONS + np.arange(len(POSITIONS)) % 2 * 0.25
    frequencies = np.random.default_rng(1).standard_normal(17) * 10.0 ** -np.arange(17)
    frequencies[4] = 0
    for places in (POSITIONS, positions):
        actual = rope(path, x, places, 34, 10_000.0, inverse, pairs, frequencies=frequencies)
        wanted = reference.partial_rope(x, places, 34, inverse=inverse, pairs=pairs, frequencies=frequencies)
        assert_close(actual, wanted, 1e-6 if dtype == "float32" else None)
        first = 66 + (8 if pairs == "interleaved" else 4)
        assert same_bits(actual[..., first], x[..., first])  # the pair that stands still


def test_frequencies_that_are_the_powers_of_theta(path: Path) -> None:
    x = draw(13, (len(POSITIONS), 70))
    powers = np.array([160_000.0 ** (-2.0 * i / 64) for i in range(32)])
    actual = rope(path, x, POSITIONS, frequencies=powers)
    assert_close(actual, rope(path, x, POSITIONS, theta=160_000.0).astype(np.float64), 1e-6)


def test_frequencies_of_other_types() -> None:
    x = draw(14, (3, 9))
    expected = deepseek.partial_rope(x, [1, 2, 3], 4, frequencies=np.array([2.0, 0.5]))
    for frequencies in ([2, 0.5], (2.0, 0.5), np.float32([2, 0.5]), np.array([0.5, 9, 2])[::-2]):
        assert same_bits(deepseek.partial_rope(x, [1, 2, 3], 4, frequencies=frequencies), expected)
    whole = deepseek.partial_rope(x, [1, 2, 3], 4, frequencies=np.array([2, 1], np.uint8))
    assert same_bits(whole, deepseek.partial_rope(x, [1, 2, 3], 4, frequencies=[2.0, 1.0]))


def test_infinities_go_where_their_pairs_are(path: Path) -> None:
    x = np.zeros((1, 8), np.float32)
    x[0, 0], x[0, 4] = np.inf, np.nan
    actual = rope(path, x, np.array([1]), 6)
    assert np.isinf(actual[0, 0])
    assert np.isnan(actual[0]).tolist() == [i in (4, 7) for i in range(8)]


def test_positions_of_other_types() -> None:
    x = draw(11, (3, 64))
    expected = deepseek.partial_rope(x, np.array([1, 2, 3]))
    for positions in ([1, 2, 3], range(1, 4), np.array([1, 2, 3], np.uint8), np.array([1, 0, 2, 0, 3.0])[::2]):
        assert same_bits(deepseek.partial_rope(x, positions), expected)


# --- errors ---

X, P = np.zeros((2, 3, 70), np.float32), np.arange(2)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": X[0, 0]}, ValueError, "x: expected [..., T, heads, head_dim] or [T, head_dim], got shape (70,)"),
        ({"x": X.astype(np.float64)}, TypeError, "x: expected float32, float16 or bfloat16, got float64"),
        ({"positions": [1, 2, 3]}, ValueError, "positions: expected [T] with T = 2, got shape (3,)"),
        ({"positions": [[1, 2]]}, ValueError, "positions: expected [T] with T = 2, got shape (1, 2)"),
        ({"positions": ["1", "2"]}, TypeError, "positions: expected integers or real numbers, got dtype <U1"),
        ({"positions": [True, False]}, TypeError, "positions: expected integers or real numbers, got dtype bool"),
        ({"positions": [0, np.nan]}, ValueError, "positions: expected finite numbers up to 2^53"),
        ({"positions": [0, 2**60]}, ValueError, "positions: expected finite numbers up to 2^53"),
        ({"n_rot": 72}, ValueError, "n_rot: expected 2 to 70, got 72"),
        ({"n_rot": 63}, ValueError, "n_rot: expected an even number up to head_dim = 70, got 63"),
        ({"n_rot": 0}, ValueError, "n_rot: expected 2 to 70, got 0"),
        ({"n_rot": 64.0}, TypeError, "n_rot: expected a whole number from 2, got float"),
        ({"theta": 0}, ValueError, "theta: expected a number above 0, got 0.0"),
        ({"theta": np.inf}, ValueError, "theta: expected a finite number, got inf"),
        ({"frequencies": [1.0] * 31}, ValueError, "frequencies: expected [n_rot/2] with n_rot/2 = 32, got shape (31,)"),
        ({"frequencies": 1.0}, ValueError, "frequencies: expected [n_rot/2] with n_rot/2 = 32, got shape ()"),
        ({"frequencies": ["1"] * 32}, TypeError, "frequencies: expected integers or real numbers, got dtype <U1"),
        ({"frequencies": [1j] * 32}, TypeError, "frequencies: expected integers or real numbers, got dtype complex128"),
        ({"frequencies": [np.inf] * 32}, ValueError, "frequencies: expected finite numbers up to 2^53, got inf"),
        ({"frequencies": [1.0] * 32, "theta": 1e5}, ValueError, "theta: expected its default where frequencies are"),
        ({"inverse": None}, TypeError, "inverse: expected True or False, got NoneType"),
        ({"pairs": "neox"}, ValueError, "pairs: expected one of split, interleaved, got 'neox'"),
        ({"out": X[:, :, 1:]}, ValueError, "out: expected shape (2, 3, 70), got (2, 3, 69)"),
        ({"out": X[::-1]}, ValueError, "out: expected memory of its own, it overlaps x"),
        ({"out": np.empty((2, 3, 70), np.float16)}, TypeError, "out: expected the dtype of x, float32, got float16"),
        ({"out": np.empty((70, 3, 2), np.float32).T}, ValueError, "out: expected a contiguous last axis, got strides"),
        ({"x": X.repeat(2, axis=2)[..., ::2], "out": "x"}, ValueError, "out: expected a contiguous last axis, got"),
    ],
)
def test_wrong_arguments(change: dict[str, object], error: type[Exception], message: str) -> None:
    arguments = {"x": X, "positions": P, **change}
    if isinstance(change.get("out"), str):
        arguments["out"] = arguments["x"]
    with pytest.raises(error) as raised:
        deepseek.partial_rope(**arguments)  # type: ignore[arg-type]
    assert str(raised.value).startswith(message)
    assert not X.any()


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32, np.float32])
@pytest.mark.parametrize("in_place", [False, True])
def test_positions_and_frequencies_may_not_overlap_the_output(dtype: type, in_place: bool) -> None:
    memory = np.zeros(64, np.float64)
    out = memory.view(ml_dtypes.bfloat16).reshape(4, 64)
    x = out if in_place else np.zeros((4, 64), ml_dtypes.bfloat16)
    with pytest.raises(ValueError, match="out: expected memory of its own, it overlaps positions"):
        deepseek.partial_rope(x, memory.view(dtype)[:4], out=out)
    with pytest.raises(ValueError, match="out: expected memory of its own, it overlaps frequencies"):
        deepseek.partial_rope(x, np.arange(4), frequencies=memory.view(dtype)[:32], out=out)
    assert not memory.any()


def test_the_core_checks_too() -> None:
    places = P.astype(np.float64)
    for message, arguments in {
        "x: expected two dimensions or more, got 1": (X[0, 0], places, X[0, 0]),
        "out: expected shape (2, 3, 70), got (3, 70)": (X, places, X[0]),
        "positions: expected 2, got 8 bytes": (X, places[:1], X),
        "n_rot: expected an even number from 2 to 70, got 71": (X, places, X, 71),
        "n_rot: expected an even number from 2 to 70, got 72": (X, places, X, 72),
        "x: expected a stride of 4 bytes along axis 2, got 8": (X.repeat(2, axis=2)[..., ::2], places, X),
    }.items():
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            _core.partial_rope(*arguments)  # type: ignore[arg-type]
        assert str(raised.value) == message
    with pytest.raises(ValueError, match="frequencies: expected 32, got 248 bytes"):
        _core.partial_rope(X, places, X, frequencies=np.zeros(31))
    with pytest.raises(TypeError, match="out: expected the dtype of x"):
        _core.partial_rope(X, places, X.astype(np.float16))


@pytest.mark.parametrize("name", ["cbquant.deepseek._rope", "cbquant.reference.deepseek._rope"])
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
