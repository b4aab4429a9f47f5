"""cbquant.deepseek.compressor_pool against float64."""

from __future__ import annotations

import doctest
import importlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbquant import _core, deepseek
from cbquant.reference import deepseek as reference
from tests.deepseek_inputs import DTYPES, Array, assert_close, bits, draw, dtypes, same_bits, steps, strided
from tests.paths import PATHS, Path

PLACES = ["value", "gate"]
INF = np.inf


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def pool(path: Path, gate: Array, kv: Array, ape: Array, ape_on: str = "value", threads: int = 1) -> Array:
    """By a set of kernels; the memory that the result goes to is filled with something else first."""
    out = np.full((len(kv), kv.shape[2]), 7, np.float32).astype(kv.dtype)
    path.core.compressor_pool(bits(gate), bits(kv), bits(ape), bits(out), ape_on == "gate", threads, path.level)
    return out


def inputs(
    shape: tuple[int, int, int], gates: int, dtype: str = "float32", seed: int = 0
) -> tuple[Array, Array, Array]:
    windows, entries, columns = shape
    gate = draw(seed, (windows, entries, gates), dtype, 2)
    return gate, draw(seed + 1, shape, dtype), draw(seed + 2, (entries, columns), dtype)


# --- the reference ---


def test_reference_with_fractions() -> None:
    """Gates of logarithms of whole numbers have whole weights."""
    numbers = np.array([[3, 1, 4], [1, 5, 9]]).T[None]
    kv = np.array([[2, 7, 1], [8, 2, 8]]).T[None]
    ape = np.array([[1, 6, 1], [8, 0, 3]]).T
    expected = [
        float(
            sum(Fraction(int(g)) * int(v + a) for g, v, a in zip(numbers[0, :, d], kv[0, :, d], ape[:, d], strict=True))
        )
        / int(numbers[0, :, d].sum())
        for d in range(2)
    ]
    np.testing.assert_allclose(reference.compressor_pool(np.log(numbers), kv, ape)[0], expected, rtol=1e-14)
    with_gate = np.log(numbers) - np.log(ape + 1)
    expected = [
        float((numbers[0, :, d] * kv[0, :, d]).sum() / numbers[0, :, d].sum())
        for d in range(2)
    ]  # fmt: skip
    actual = reference.compressor_pool(with_gate, kv, np.log(ape + 1), "gate")[0]
    np.testing.assert_allclose(actual, expected, rtol=1e-14)


# --- the operator ---


@pytest.mark.parametrize("ape_on", PLACES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(3, 8, 512), (2, 128, 512), (2, 7, 257), (1, 9, 3), (4, 1, 16), (1, 17, 33)], ids=str
)
@pytest.mark.parametrize("one_gate", [False, True])
def test_windows(path: Path, ape_on: str, dtype: str, shape: tuple[int, int, int], one_gate: bool) -> None:
    gate, kv, ape = inputs(shape, 1 if one_gate else shape[2], dtype)
    assert_close(pool(path, gate, kv, ape, ape_on), reference.compressor_pool(gate, kv, ape, ape_on))


@pytest.mark.parametrize(
    "types", [("float32", "bfloat16", "float16"), ("bfloat16", "float32", "float32")], ids="-".join
)
@pytest.mark.parametrize("ape_on", PLACES)
@pytest.mark.parametrize("one_gate", [False, True])
def test_dtypes_may_differ(path: Path, types: tuple[str, ...], ape_on: str, one_gate: bool) -> None:
    arrays = inputs((2, 11, 70), 1 if one_gate else 70)
    gate, kv, ape = (array.astype(DTYPES[name]) for array, name in zip(arrays, types, strict=True))
    assert_close(pool(path, gate, kv, ape, ape_on), reference.compressor_pool(gate, kv, ape, ape_on))


@pytest.mark.parametrize("ape_on", PLACES)
@pytest.mark.parametrize("entries", [2, 8, 9, 128])
@pytest.mark.parametrize("one_gate", [False, True])
def test_entries_with_gate_minus_infinity_are_left_out(path: Path, ape_on: str, entries: int, one_gate: bool) -> None:
    """Whatever they hold: the missing rows of the first overlapping window are memory that nobody wrote."""
    gate, kv, ape = inputs((4, entries, 40), 1 if one_gate else 40)
    gate[0, : entries // 2], kv[0, : entries // 2] = -INF, np.nan
    gate[1, entries // 2 :], kv[1, entries // 2 :] = -INF, np.inf
    gate[2], kv[2] = -INF, np.nan
    gate[3, 1::2] = -INF
    actual = pool(path, gate, kv, ape, ape_on)
    assert_close(actual, reference.compressor_pool(gate, kv, ape, ape_on))
    assert not actual[2].any()
    kept = pool(path, gate[:1, entries // 2 :], kv[:1, entries // 2 :], ape[entries // 2 :], ape_on)
    assert_close(actual[:1], kept.astype(np.float64), 1e-6)


def test_columns_are_left_out_one_by_one(path: Path) -> None:
    gate, kv, ape = inputs((2, 20, 50), 50)
    rng = np.random.default_rng(1)
    gate[rng.random(gate.shape) < 0.7] = -INF
    gate[:, :, 7] = -INF
    actual = pool(path, gate, kv, ape)
    assert_close(actual, reference.compressor_pool(gate, kv, ape))
    assert not actual[:, 7].any()


@pytest.mark.parametrize("one_gate", [False, True])
def test_large_gates(path: Path, one_gate: bool) -> None:
    """Only differences count, below -5e4 too; rising gates make the running maximum move at each block."""
    gate, kv, ape = inputs((5, 64, 30), 1 if one_gate else 30)
    gate[0] += 1e4
    gate[1] -= 6e4
    gate[2] *= 1e6
    gate[3] = np.arange(64, dtype=np.float32)[:, None]
    gate[4] = -np.arange(64, dtype=np.float32)[:, None] * 100
    assert_close(pool(path, gate, kv, ape), reference.compressor_pool(gate, kv, ape))


@pytest.mark.parametrize("one_gate", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_gates_that_are_no_numbers(path: Path, one_gate: bool, bad: float) -> None:
    gate, kv, ape = inputs((3, 12, 20), 1 if one_gate else 20)
    gate[1, 5, 0] = bad
    actual = pool(path, gate, kv, ape)
    assert np.array_equal(np.isnan(actual), np.isnan(reference.compressor_pool(gate, kv, ape)))
    assert np.isnan(actual[1, 0])
    assert not np.isnan(actual[[0, 2]]).any()


def test_overlapping_windows_are_strides(path: Path) -> None:
    """Windows of eight entries every four: no entry is copied."""
    cache, ape = draw(1, (4 * 9, 512)), draw(2, (8, 512))
    gates = draw(3, cache.shape)
    size = cache.strides[0]
    windows, gate_windows = (
        np.lib.stride_tricks.as_strided(x, (8, 8, 512), (4 * size, size, 4), writeable=False) for x in (cache, gates)
    )
    expected = reference.compressor_pool(gate_windows.copy(), windows.copy(), ape)
    assert_close(pool(path, gate_windows, windows, ape), expected)
    assert_close(deepseek.compressor_pool(gate_windows, windows, ape), expected)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_shape_and_strides(data: st.DataObject) -> None:
    shape = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 20)), data.draw(st.integers(0, 70))
    one_gate = data.draw(st.booleans())
    names = [data.draw(dtypes) for _ in range(3)]
    gate, kv, ape = (
        array.astype(DTYPES[name])
        for array, name in zip(inputs(shape, 1 if one_gate else shape[2]), names, strict=True)
    )
    views = [strided(array, tuple(data.draw(steps) for _ in array.shape)) for array in (gate, kv, ape)]
    ape_on = data.draw(st.sampled_from(PLACES))
    expected = reference.compressor_pool(gate, kv, ape, ape_on)
    actual = deepseek.compressor_pool(*views, ape_on)
    assert actual.dtype == kv.dtype
    assert_close(actual, expected)
    out = strided(np.zeros(expected.shape, np.float32), (data.draw(steps), 1))
    assert deepseek.compressor_pool(*views, ape_on, out=out) is out
    assert_close(out, expected)


def test_windows_do_not_know_each_other(path: Path) -> None:
    for one_gate in (False, True):
        gate, kv, ape = inputs((6, 13, 300), 1 if one_gate else 300, "bfloat16")
        together = pool(path, gate, kv, ape)
        for w in range(6):
            assert same_bits(pool(path, gate[w : w + 1], kv[w : w + 1], ape)[0], together[w])


@pytest.mark.parametrize("threads", [2, 7])
@pytest.mark.parametrize("one_gate", [False, True])
def test_threads_change_nothing(path: Path, threads: int, one_gate: bool) -> None:
    gate, kv, ape = inputs((40, 8, 520), 1 if one_gate else 520)
    assert same_bits(pool(path, gate, kv, ape), pool(path, gate, kv, ape, threads=threads))


def test_no_entries_give_zeros() -> None:
    empty = np.zeros((3, 0, 5), np.float32)
    assert np.array_equal(deepseek.compressor_pool(empty, empty, empty[0]), np.zeros((3, 5)))
    assert np.array_equal(deepseek.compressor_pool(empty[:, :, :1], empty, empty[0]), np.zeros((3, 5)))


# --- errors ---

GATE, KV, APE = np.zeros((2, 3, 1), np.float32), np.zeros((2, 3, 4), np.float32), np.zeros((3, 4), np.float32)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((GATE, KV[0], APE), {}, ValueError, "kv: expected [W, P, D], got shape (3, 4)"),
        ((GATE[:1], KV, APE), {}, ValueError, "gate: expected (2, 3, 4), as kv, or 1 for its last axis, got shape"),
        ((KV[..., :2], KV, APE), {}, ValueError, "gate: expected (2, 3, 4), as kv, or 1 for its last axis, got"),
        ((GATE, KV, APE[0]), {}, ValueError, "ape: expected [P, D] with P = 3, D = 4, got shape (4,)"),
        ((GATE, KV.astype(int), APE), {}, TypeError, "kv: expected float32, float16 or bfloat16, got int64"),
        ((GATE, KV, APE), {"ape_on": "kv"}, ValueError, "ape_on: expected one of value, gate, got 'kv'"),
        ((GATE, KV, APE), {"out": np.empty((2, 3), np.float32)}, ValueError, "out: expected shape (2, 4), got (2, 3)"),
        ((GATE, KV, APE), {"out": KV[:, 0]}, ValueError, "out: expected memory of its own, it overlaps kv"),
        ((GATE, KV, APE), {"out": APE[:2]}, ValueError, "out: expected memory of its own, it overlaps ape"),
        ((KV, KV.copy(), APE), {"out": KV[:, 0]}, ValueError, "out: expected memory of its own, it overlaps gate"),
        ((GATE, KV, APE), {"threads": "2"}, TypeError, "threads: expected a whole number from 1, got str"),
    ],
)  # fmt: skip
def test_wrong_arguments(
    arguments: tuple[Array, ...], options: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        deepseek.compressor_pool(*arguments, **options)  # type: ignore[arg-type]
    assert str(raised.value).startswith(message)


def test_the_core_checks_too() -> None:
    out = np.empty((2, 4), np.float32)
    for message, arguments in {
        "kv: expected three dimensions, got 2": (GATE, KV[0], APE, out),
        "gate: expected shape (2, 3, 4), got (2, 3, 2)": (KV[..., :2], KV, APE, out),
        "ape: expected shape (3, 4), got (2, 4)": (GATE, KV, APE[:2], out),
        "out: expected shape (2, 4), got (1, 4)": (GATE, KV, APE, out[:1]),
        "kv: expected a stride of 4 bytes along axis 2, got 8": (GATE, KV.repeat(2, axis=2)[..., ::2], APE, out),
    }.items():
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            _core.compressor_pool(*arguments)
        assert str(raised.value) == message


@pytest.mark.parametrize("name", ["cbquant.deepseek._pool", "cbquant.reference.deepseek._pool"])
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
