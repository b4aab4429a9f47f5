"""sdpa_decode_sink and sparse_sdpa_decode: every path against the reference in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import cbquant
from cbquant.deepseek import sdpa_decode_sink, sparse_sdpa_decode
from cbquant.reference import deepseek as reference
from tests.attention_inputs import ATTENTION, DTYPES, EXACT_INPUTS, bits, drawn, error, same_bits
from tests.paths import PATHS, Path

#: heads, heads of the cache, positions, head dim, dim of the values
SHAPES = [(1, 1, 1, 64, 64), (6, 3, 77, 128, 128), (64, 1, 130, 512, 512), (9, 1, 65, 5, 7), (3, 3, 1, 16, 48)]
SHAPES += [(25, 1, 63, 192, 130), (2, 1, 1100, 576, 64), (32, 2, 200, 64, 256), (4, 4, 600, 256, 1)]


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def attend(path: Path, q: Any, k: Any, v: Any, sink: Any = None, threads: int = 1, **rest: Any) -> NDArray[np.float32]:
    """Float32 results of a batch; the memory that they go to is filled with NaN first."""
    out = np.full((*q.shape[:2], v.shape[3]), np.nan, np.float32)
    scale = max(q.shape[2], 1) ** -0.5
    path.core.sdpa(bits(q), bits(k), bits(v), out, scale, sink, threads=threads, isa=path.level, **rest)
    return out


def operands(shape: tuple[int, ...], dtype: str, batch: int = 1) -> tuple[NDArray[Any], ...]:
    heads, groups, n, width, value_width = shape
    q = drawn((batch, heads, width), dtype)
    k, v = drawn((batch, groups, n, width), dtype, 1), drawn((batch, groups, n, value_width), dtype, 2)
    return q, k, v, drawn((heads,), seed=3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_and_dtype(path: Path, shape: tuple[int, ...], dtype: str) -> None:
    q, k, v, sink = operands(shape, dtype)
    expected = reference.sdpa_decode_sink(q, k, v, sink)
    assert error(attend(path, q, k, v, sink), expected) <= EXACT_INPUTS


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(64, 1, 16_384, 512), (8, 8, 16_411, 128), (128, 2, 5000, 576)], ids=str)
def test_the_size_of_a_model(shape: tuple[int, ...], dtype: str) -> None:
    heads, groups, n, width = shape
    q, k, sink = drawn((heads, width), dtype), drawn((groups, n, width), dtype, 1), drawn((heads,), dtype, 2)
    v = k if groups == 1 else drawn((groups, n, width), dtype, 4)
    actual = sdpa_decode_sink(q, k, v, sink)
    assert actual.dtype == q.dtype
    assert error(actual, reference.sdpa_decode_sink(q, k, v, sink)) <= ATTENTION[dtype]


def test_types_may_differ(path: Path) -> None:
    q, k, v = drawn((1, 4, 64), "bfloat16"), drawn((1, 2, 50, 64), "float16", 1), drawn((1, 2, 50, 64), "float32", 2)
    assert error(attend(path, q, k, v), reference.sdpa_decode_sink(q, k, v, None)) <= EXACT_INPUTS


@pytest.mark.parametrize("heads", [3, 40])
def test_sinks_above_and_below_the_maximum(path: Path, heads: int) -> None:
    q, k, v, _ = operands((heads, 1, 300, 64, 64), "float32")
    plain = reference.sdpa_decode_sink(q, k, v, None)
    for level in (-np.inf, -1e4, -3.0, 0.0, 3.0, 30.0, 1e4, 1e30):
        sink = np.full(heads, level, np.float32)
        actual = attend(path, q, k, v, sink)
        assert error(actual, reference.sdpa_decode_sink(q, k, v, sink)) <= EXACT_INPUTS
        if level <= -1e4:
            assert error(actual, plain) <= EXACT_INPUTS
        if level >= 1e4:
            assert not actual.any()
    assert not attend(path, q, k, v, np.full(heads, np.inf, np.float32)).any()
    assert np.isnan(attend(path, q, k, v, np.full(heads, np.nan, np.float32))).all()


@pytest.mark.parametrize("heads", [2, 40])
@pytest.mark.parametrize("level", [-5e4, -3e8, 5e4, -1e-30])
def test_logits_of_any_size_are_real(path: Path, heads: int, level: float) -> None:
    """All logits are the same number, so that the result is the mean of the values, at any level."""
    q = np.ones((1, heads, 16), np.float32)
    k = np.full((1, 1, 200, 16), np.float32(level / 4))
    v = drawn((1, 1, 200, 16))
    mean = np.broadcast_to(v.astype(np.float64).mean(axis=2), (1, heads, 16))
    assert error(attend(path, q, k, v), mean) <= EXACT_INPUTS


def test_exact_logits_far_below_zero(path: Path) -> None:
    """Logits -60000 - i: what float32 has exactly, so that their weights are right to the last bits."""
    n, width = 90, 8
    k = np.zeros((1, 1, n, width), np.float32)
    k[0, 0, :, 0] = -60_000 - np.arange(n)[::-1]
    q, v = np.zeros((1, 30, width), np.float32), drawn((1, 1, n, width))
    q[:, :, 0] = 1
    out = np.empty((1, 30, width), np.float32)
    path.core.sdpa(q, k, v, out, 1.0, None, isa=path.level)
    assert error(out, reference.sdpa_decode_sink(q, k, v, None, scale=1.0)) <= EXACT_INPUTS


@pytest.mark.parametrize("heads", [2, 40])
def test_rows_of_minus_infinity(path: Path, heads: int) -> None:
    q, k, v, sink = operands((heads, 1, 1200, 64, 64), "float32")
    q[:, :, 0] = np.abs(q[:, :, 0]) + 1
    k[..., 0] = -np.inf
    assert not attend(path, q, k, v).any()
    assert not attend(path, q, k, v, sink).any()
    some = np.random.default_rng(0).random(1200) < 0.5
    some[:700] = False  # the first piece has nothing
    k[0, 0, some, 0] = 0.5
    v[0, 0, ~some] = np.inf  # what is left out may be anything
    v[0, 0, ~some, 5] = np.nan
    for others in (None, sink):
        expected = reference.sdpa_decode_sink(q, k, v, others)
        assert np.isfinite(expected).all()
        assert error(attend(path, q, k, v, others), expected) <= EXACT_INPUTS


@pytest.mark.parametrize("sink", [np.inf, np.nan, 1.0, -np.inf, None])
@pytest.mark.parametrize("key", [np.inf, np.nan, 1.0, -np.inf])
def test_what_is_not_finite_is_so_in_the_reference(path: Path, key: float, sink: float | None) -> None:
    q, v = np.ones((1, 2, 16), np.float32), drawn((1, 1, 20, 16))
    k = np.zeros((1, 1, 20, 16), np.float32)
    k[0, 0, 7, 0] = key
    sinks = None if sink is None else np.float32([sink, 0])
    expected = reference.sdpa_decode_sink(q, k, v, sinks)
    assert np.isnan(expected[0, 0]).all() == (np.isnan([key, sink or 0]).any() or key == np.inf)
    actual = attend(path, q, k, v, sinks)
    assert np.array_equal(np.isnan(actual), np.isnan(expected))
    assert error(np.nan_to_num(actual), np.nan_to_num(expected)) <= EXACT_INPUTS


def test_batches_and_widths_of_zero(path: Path) -> None:
    for shape in ((0, 4, 2, 5, 8, 8), (2, 4, 2, 5, 0, 8), (2, 4, 2, 5, 8, 0), (2, 4, 2, 0, 8, 8), (2, 0, 2, 5, 8, 8)):
        batch, heads, groups, n, width, columns = shape
        q, k, v = (
            drawn((batch, heads, width)),
            drawn((batch, groups, n, width), seed=1),
            drawn((batch, groups, n, columns)),
        )
        expected = reference.sdpa_decode_sink(q, k, v, None)
        assert expected.shape == (batch, heads, columns)
        assert error(attend(path, q, k, v), expected) <= EXACT_INPUTS
        lists = np.zeros((batch, 3), int) if n else np.full((batch, 3), -1)
        assert error(sparse_sdpa_decode(q, k, v, lists), reference.sparse_sdpa_decode(q, k, v, lists)) <= EXACT_INPUTS


def test_nan_stays_with_its_head(path: Path) -> None:
    for heads in (2, 40):
        q, k, v, _ = operands((heads, heads // 2, 700, 64, 64), "float32")
        k[0, 0, 650, 3] = np.nan
        actual = attend(path, q, k, v)
        assert np.isnan(actual[0, :2]).all()
        assert np.isfinite(actual[0, 2:]).all()


# --- however the work is cut ---


@pytest.mark.parametrize("shape", [(6, 2, 3001, 64, 64), (64, 1, 2000, 128, 128), (5, 5, 1500, 7, 9)], ids=str)
def test_threads_change_no_bit(path: Path, shape: tuple[int, ...]) -> None:
    q, k, v, sink = operands(shape, "float16", batch=2)
    lengths = np.array([shape[2], 777], np.int64)
    one = attend(path, q, k, v, sink, lengths=lengths)
    for threads in (2, 7):
        assert same_bits(attend(path, q, k, v, sink, threads, lengths=lengths), one)


@pytest.mark.parametrize("shape", [(4, 2, 1700, 64, 64), (30, 1, 600, 32, 16)], ids=str)
def test_a_batch_is_its_sequences_one_by_one(path: Path, shape: tuple[int, ...]) -> None:
    q, k, v, sink = operands(shape, "bfloat16", batch=5)
    lengths = np.array([0, 1, shape[2], 513, 64], np.int64)
    together = attend(path, q, k, v, sink, threads=2, lengths=lengths)
    for b, n in enumerate(lengths):
        alone = attend(path, q[b : b + 1], k[b : b + 1, :, :n], v[b : b + 1, :, :n], sink)
        assert same_bits(together[b : b + 1], alone)
    assert not together[0].any()


def test_many_sequences_go_in_rounds() -> None:
    """Their partial results are more than one round's."""
    q, k = drawn((700, 40, 512), "float16"), drawn((700, 1, 3, 512), "float16", 1)
    together = sdpa_decode_sink(q, k, k, None)
    for b in (0, 350, 699):
        assert same_bits(together[b], sdpa_decode_sink(q[b], k[b], k[b], None))


def test_the_same_memory_twice_is_read_once_and_gives_the_same(path: Path) -> None:
    for heads in (4, 40):
        q, k, _, sink = operands((heads, 1, 700, 128, 128), "float16")
        assert same_bits(attend(path, q, k, k, sink), attend(path, q, k, k.copy(), sink))


def test_strides_need_no_copies(path: Path) -> None:
    for heads in (4, 40):
        q, k, v, sink = operands((heads, 2, 300, 64, 64), "float16", batch=2)
        expected = attend(path, q, k, v, sink)
        by_position = np.ascontiguousarray(k.transpose(2, 0, 1, 3)).transpose(1, 2, 0, 3)
        wide = np.zeros((2, 2, 900, 100), np.float16)
        wide[:, :, ::3, 7:71] = v
        backwards = q[:, ::-1].copy()[:, ::-1]
        assert same_bits(attend(path, backwards, by_position, wide[:, :, ::3, 7:71], sink), expected)
        out = np.zeros((2, heads, 128), np.float32)[:, :, 1::2]
        with pytest.raises(ValueError, match="out: expected a contiguous last axis"):
            path.core.sdpa(q, k, v, out, 0.1, None, isa=path.level)
        memory = np.full((heads, 2, 70), 9, np.float32)
        path.core.sdpa(q, k, v, memory.transpose(1, 0, 2)[:, :, 3:67], 0.125, sink, isa=path.level)
        assert same_bits(np.ascontiguousarray(memory.transpose(1, 0, 2)[:, :, 3:67]), expected)
        assert (memory[:, :, :3] == 9).all()
        assert (memory[:, :, 67:] == 9).all()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_shape_stride_and_dtype(data: st.DataObject) -> None:
    groups, share = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([1, 2, 5, 24, 25]))
    n, width, value_width = (data.draw(st.integers(low, 140)) for low in (0, 1, 1))
    dtypes = [data.draw(st.sampled_from([*DTYPES])) for _ in range(3)]
    q = drawn((share * groups, 2 * width), dtypes[0])[:, :: data.draw(st.sampled_from([1, 2]))][:, :width]
    k = drawn((n, groups, width + 3), dtypes[1], 1)[:, :, 1 : width + 1].transpose(1, 0, 2)
    v = drawn((groups, 2 * n, value_width), dtypes[2], 2)[:, ::2][:, ::-1]
    sink = data.draw(st.sampled_from([None, drawn((share * groups,), dtypes[0], 3)]))
    scale = data.draw(st.sampled_from([None, 0.5, -0.01, 0.0]))
    out = np.empty((share * groups, value_width), np.float32)
    threads = data.draw(st.sampled_from([1, 2, 7]))
    assert sdpa_decode_sink(q, k, v, sink, scale, out=out, threads=threads) is out
    assert error(out, reference.sdpa_decode_sink(q, k, v, sink, scale)) <= EXACT_INPUTS
    chosen = data.draw(st.lists(st.integers(-1, n - 1), max_size=80))
    sparse_sdpa_decode(q, k, v, np.array(chosen, np.int32), sink, scale, out=out, threads=threads)
    assert error(out, reference.sparse_sdpa_decode(q, k, v, np.array(chosen, int), sink, scale)) <= EXACT_INPUTS


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_are_rounded_once(path: Path, dtype: str) -> None:
    q, k, v, _ = operands((3, 1, 50, 64, 70), "float32")
    exact = attend(path, q, k, v)
    out = np.zeros((1, 3, 70), DTYPES[dtype])
    path.core.sdpa(q, k, v, bits(out), 0.125, None, isa=path.level)
    assert same_bits(out, exact.astype(DTYPES[dtype]))


# --- over a list ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [4, 64])
def test_lists_of_positions(path: Path, heads: int, dtype: str) -> None:
    q, k, v, sink = operands((heads, 2, 900, 64, 64), dtype, batch=3)
    rng = np.random.default_rng(0)
    lists = rng.integers(-1, 900, (3, 640))
    lists[2] = -1
    expected = reference.sparse_sdpa_decode(q, k, v, lists, sink)
    actual = attend(path, q, k, v, sink, indices=lists)
    assert error(actual, expected) <= EXACT_INPUTS
    assert not actual[2].any()
    assert same_bits(attend(path, q, k, v, sink, 7, indices=lists), actual)
    one = attend(path, q, k, v, sink, indices=lists[:1])
    assert same_bits(one[0], actual[0])
    assert error(one, reference.sparse_sdpa_decode(q, k, v, lists[0], sink)) <= EXACT_INPUTS


def test_a_list_of_everything_is_the_whole_cache() -> None:
    q, k, sink = drawn((64, 512), "float16"), drawn((1, 3000, 512), "float16", 1), drawn((64,), seed=2)
    whole = sdpa_decode_sink(q, k, k, sink)
    assert same_bits(sparse_sdpa_decode(q, k, k, np.arange(3000), sink), whole)
    padded = np.full(4000, -1, np.int64)
    padded[np.sort(np.random.default_rng(0).permutation(4000)[:3000])] = np.arange(3000)
    assert same_bits(sparse_sdpa_decode(q, k, k, padded, sink), whole)


@pytest.mark.parametrize("index", [-2, 50, 2**31, 2**40, 2**64 - 1])
def test_an_index_outside_is_an_error_before_anything_is_written(index: Any) -> None:
    q, k, v, _ = operands((2, 1, 50, 8, 8), "float32")
    out = np.full((2, 8), 7, np.float32)
    indices = np.array([3, 4, index], np.uint64 if index > 2**62 else np.int64)
    with pytest.raises(ValueError, match=r"indices: expected -1 to 49, got -?\d+ at 2 of list 0"):
        sparse_sdpa_decode(q[0], k[0], v[0], indices, out=out)
    assert (out == 7).all()


# --- errors ---


def test_errors_name_the_argument() -> None:
    q, k, v, sink = (x[0] if x.ndim > 1 else x for x in operands((4, 2, 5, 8, 8), "float32"))
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: sdpa_decode_sink(q[:3], k, v, None), ValueError, "q: expected a multiple of 2 heads"),
        (lambda: sdpa_decode_sink(q, k[:, :, :4], v, None), ValueError, "k: expected .*with.* D = 8"),
        (lambda: sdpa_decode_sink(q, k, v[:, :4], None), ValueError, "v: expected .* n = 5"),
        (lambda: sdpa_decode_sink(q, k[0], v, None), ValueError, "k: expected"),
        (lambda: sdpa_decode_sink(q.astype(float), k, v, None), TypeError, "q: expected float32"),
        (lambda: sdpa_decode_sink(q, k, v, sink[:3]), ValueError, "sink: expected .* H = 4"),
        (lambda: sdpa_decode_sink(q, k, v, sink, scale="1"), TypeError, "scale: expected a number"),
        (lambda: sdpa_decode_sink(q, k, v, sink, lengths=[5]), ValueError, "lengths: expected None without a batch"),
        (lambda: sdpa_decode_sink(q[None], k[None], v[None], sink, lengths=[6]), ValueError, "0 to 5, got 6"),
        (lambda: sdpa_decode_sink(q[None], k[None], v[None], sink, lengths=[5, 5]), ValueError, "lengths: expected"),
        (lambda: sdpa_decode_sink(q[None], k[None], v[None], sink, lengths=[2.0]), TypeError, "lengths: .* integers"),
        (lambda: sdpa_decode_sink(q, k, v, sink, out=q), ValueError, "out: expected memory of its own, it overlaps q"),
        (lambda: sdpa_decode_sink(q, k, v, sink, out=k.reshape(-1)[:32].reshape(4, 8)), ValueError, "overlaps k"),
        (lambda: sdpa_decode_sink(q, k, v, sink, out=np.empty((4, 9), np.float32)), ValueError, "out: expected shape"),
        (lambda: sdpa_decode_sink(q, k, v, sink, threads=0), ValueError, "threads: expected 1"),
        (lambda: sparse_sdpa_decode(q, k, v, [1.5]), TypeError, "indices: expected integers"),
        (lambda: sparse_sdpa_decode(q, k, v, [[1]]), ValueError, r"indices: expected \[n_sel\] without a batch"),
        (lambda: sparse_sdpa_decode(q[None], k[None], v[None], [[1], [2]]), ValueError, "indices: expected .* B = 1"),
    ]
    for call, kind, text in cases:
        with pytest.raises(kind, match=text):
            call()


def test_the_core_checks_too() -> None:
    q, k, v, sink = operands((4, 2, 5, 8, 8), "float32")
    out, sdpa = np.empty((1, 4, 8), np.float32), cbquant._core.sdpa
    for arguments, rest, text in [
        ((q[0], k, v, out), {}, "q, k, v: expected 3, 4 and 4 dimensions"),
        ((q, k[:, :, :, :7], v, out), {}, "k: expected 8 along axis 3, got 7"),
        ((q, k, v[:, :, :4], out), {}, "v: expected 5 along axis 2, got 4"),
        ((q[:, :3], k, v, out[:, :3]), {}, "q: expected a multiple of 2 heads"),
        ((q, k, v, out[:, :3]), {}, "out: expected 4 along axis 1, got 3"),
        ((q[:, :, ::2], k[:, :, :, ::2], v, out), {}, "q: expected a contiguous last axis"),
        ((q, k, v, out), {"sink": sink[:3].copy()}, "sink: expected 4 rows of 4 bytes"),
        ((q, k, v, out), {"lengths": np.zeros(2, np.int64)}, "lengths: expected 1 rows"),
        ((q, k, v, out), {"indices": np.zeros((2, 3), np.int64)}, "indices: expected 1 or 1 lists, got 2"),
    ]:
        with pytest.raises(ValueError, match=text):
            sdpa(*arguments, 1.0, **rest)
