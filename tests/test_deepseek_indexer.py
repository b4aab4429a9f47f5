"""indexer_score and indexer_select on every path: scores against the reference, choices against the scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cbquant.deepseek import indexer_score, indexer_select, indexer_topk
from cbquant.reference import deepseek as reference
from tests.attention_inputs import DTYPES, bits, drawn, same_bits
from tests.paths import PATHS, Path


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def score(path: Path, q: NDArray[Any], k: NDArray[Any], w: NDArray[Any], threads: int = 1) -> NDArray[np.float32]:
    out = np.full((len(q), len(k)), np.nan, np.float32)
    path.core.indexer_score(bits(q), bits(k), bits(w), out, threads, path.level)
    return out


def select(path: Path, q: Any, k: Any, w: Any, topk: int, threads: int = 1, lengths: Any = None) -> NDArray[np.int32]:
    out = np.full((len(q), topk), -7, np.int32)
    path.core.indexer_select(bits(q), bits(k), bits(w), topk, out, threads, path.level, lengths)
    return out


def operands(
    batch: int, heads: int, width: int, n: int, own_keys: bool, dtype: str = "float32"
) -> tuple[NDArray[Any], ...]:
    k = drawn((n, heads, width) if own_keys else (n, width), dtype, 1)
    return drawn((batch, heads, width), dtype), k, drawn((batch, heads), dtype, 2)


def relative_error(actual: NDArray[Any], q: Any, k: Any, w: Any) -> float:
    """Against the size of what is added up: scores may cancel out."""
    size = reference.indexer_score(np.abs(q.astype(float)), np.abs(k.astype(float)), np.abs(w.astype(float)))
    return float((np.abs(actual - reference.indexer_score(q, k, w)) / size).max(initial=0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("own_keys", [False, True])
@pytest.mark.parametrize("shape", [(1, 64, 128, 200), (2, 5, 7, 65), (3, 1, 64, 1), (1, 9, 48, 130)], ids=str)
def test_scores(path: Path, shape: tuple[int, ...], own_keys: bool, dtype: str) -> None:
    q, k, w = operands(*shape, own_keys, dtype)
    assert relative_error(score(path, q, k, w), q, k, w) < 1e-6


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("own_keys", "n"), [(False, 16_411), (True, 1500)])
def test_the_size_of_a_model(own_keys: bool, n: int, dtype: str) -> None:
    q, k, w = operands(1, 64, 128, n, own_keys, dtype)
    actual = indexer_score(q[0], k, w[0])
    assert actual.dtype == np.float32
    assert relative_error(actual, q[0], k, w[0]) < 1e-6


def test_products_below_zero_count_for_nothing(path: Path) -> None:
    q, k, w = np.float32([[[1, 0], [0, 1]]]), np.float32([[2, -3], [-2, 3], [-1, -1], [4, 5]]), np.float32([[10, -1]])
    assert score(path, q, k, w).tolist() == [[20, -3, 0, 35]]


@pytest.mark.parametrize("own_keys", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 0, 50), (1, 1, 0, 1), (2, 0, 8, 50), (0, 3, 8, 50), (2, 3, 8, 0)])
def test_sizes_of_zero(path: Path, shape: tuple[int, ...], own_keys: bool) -> None:
    q, k, w = operands(*shape, own_keys)
    expected = reference.indexer_score(q, k, w)
    assert expected.shape == (shape[0], shape[3])
    assert np.array_equal(score(path, q, k, w, 2), expected)
    topk = min(shape[3], 20)
    assert np.array_equal(select(path, q, k, w, topk, 2), reference.indexer_topk(expected, topk))


def test_nan_is_kept(path: Path) -> None:
    q, k, w = operands(1, 20, 64, 100, False)
    k[17, 3] = np.nan
    assert np.flatnonzero(np.isnan(score(path, q, k, w)[0])).tolist() == [17]
    assert select(path, q, k, w, 100)[0, -1] == 17


@pytest.mark.parametrize("own_keys", [False, True])
def test_threads_and_batches_change_no_bit(path: Path, own_keys: bool) -> None:
    q, k, w = operands(3, 12, 64, 1300, own_keys, "float16")
    one = score(path, q, k, w)
    for threads in (2, 7):
        assert same_bits(score(path, q, k, w, threads), one)
    for b in range(3):
        assert same_bits(score(path, q[b : b + 1], k, w[b : b + 1]), one[b : b + 1])
    assert same_bits(score(path, q, k[37:], w), np.ascontiguousarray(one[:, 37:]))


@pytest.mark.parametrize("own_keys", [False, True])
def test_the_choice_is_that_of_the_scores(path: Path, own_keys: bool) -> None:
    q, k, w = operands(2, 3, 32, 13_000, own_keys)
    k[5000:9000] = k[:4000]  # many ties
    scores = score(path, q, k, w)
    for topk in (0, 1, 512, 4999, 13_000):
        expected = reference.indexer_topk(scores, topk)
        for threads in (1, 2, 7):
            assert np.array_equal(select(path, q, k, w, topk, threads), expected), (topk, threads)


@pytest.mark.parametrize("own_keys", [False, True])
def test_only_so_many_positions_count(path: Path, own_keys: bool) -> None:
    q, k, w = operands(5, 3, 32, 13_000, own_keys)
    w = np.abs(w)  # so that a larger key has a larger score
    scores = score(path, q, k, w)
    lengths = np.array([13_000, 0, 4097, 12, 9000], np.int64)
    for topk in (1, 40, 512, 13_500):
        expected = reference.indexer_topk(scores, topk, lengths=lengths)
        for threads in (1, 2, 7):
            assert np.array_equal(select(path, q, k, w, topk, threads, lengths), expected), (topk, threads)


def test_a_prompt_in_one_call_is_its_tokens() -> None:
    """Token t sees t // 4 entries; what comes later is not read, whatever it is."""
    q, k, w = operands(70, 8, 64, 20, False)
    seen = np.arange(70) // 4
    together = indexer_select(q, k, w, 16, lengths=seen)
    for t, n in enumerate(seen):
        alone = indexer_select(q[t], k[:n], w[t], min(16, n))
        assert same_bits(together[t, : len(alone)], alone)
        assert (together[t, len(alone) :] == -1).all()
    assert same_bits(reference.indexer_select(q, k, w, 16, lengths=seen)[:3], together[:3])
    k[10:] = np.inf
    assert same_bits(indexer_select(q[:40], k, w[:40], 16, lengths=seen[:40]), together[:40])


def test_the_choice_from_a_long_cache() -> None:
    q, k, w = operands(1, 64, 128, 65_536, False, "float16")
    expected = indexer_topk(indexer_score(q[0], k, w[0]), 512)
    for threads in (1, 2, 7):
        assert same_bits(indexer_select(q[0], k, w[0], 512, threads=threads), expected)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_shape_stride_and_dtype(data: st.DataObject) -> None:
    batch, heads, width, n = (data.draw(st.integers(low, most)) for low, most in ((0, 3), (1, 20), (1, 140), (0, 150)))
    dtypes = [DTYPES[data.draw(st.sampled_from([*DTYPES]))] for _ in range(3)]
    q, k, w = (x.astype(t) for x, t in zip(operands(batch, heads, 2 * width, n, True), dtypes, strict=True))
    q, k, w = q[:, ::-1, 1 : width + 1], k[::-1, :, :width], np.repeat(w, 2, axis=1)[:, ::2]
    if data.draw(st.booleans()):
        k = k[:, 0]
    if batch == 0:
        q, w = drawn((heads, 2 * width))[:, ::2], drawn((heads,))
    out = np.empty((*q.shape[:-2], n), np.float32)
    threads = data.draw(st.sampled_from([1, 2, 7]))
    assert indexer_score(q, k, w, out=out, threads=threads) is out
    assert relative_error(out, q, k, w) < 2e-6
    topk = data.draw(st.integers(0, n))
    chosen = np.empty((*q.shape[:-2], topk), np.int32)
    assert indexer_select(q, k, w, topk, out=chosen, threads=threads) is chosen
    assert same_bits(chosen, reference.indexer_topk(out, topk))


def test_errors_name_the_argument() -> None:
    q, k, w = (x[0] if i != 1 else x for i, x in enumerate(operands(1, 4, 8, 6, False)))
    half = np.empty(6, np.float16)
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: indexer_score(q[0], k, w), ValueError, r"q: expected \[H, D\]"),
        (lambda: indexer_score(q, k[:, :7], w), ValueError, "k: expected .* D = 8"),
        (lambda: indexer_score(q, k[:, None], w), ValueError, "k: expected .* H = 4"),
        (lambda: indexer_score(q, k, w[:3]), ValueError, "w: expected .* H = 4"),
        (lambda: indexer_score(q[None], k, w), ValueError, r"w: expected \[B, H\]"),
        (lambda: indexer_score(q, k.astype(int), w), TypeError, "k: expected float32"),
        (lambda: indexer_score(q, k, w, out=half), TypeError, "out: expected dtype float32, got float16"),
        (lambda: indexer_score(q, k, w, out=k[:, 0]), ValueError, "out: expected a contiguous last axis"),
        (lambda: indexer_score(q, k, w, out=k[0, :6]), ValueError, "out: expected memory of its own, it overlaps k"),
        (lambda: indexer_select(q, k, w, 7), ValueError, "topk: expected 0 to 6, got 7"),
        (lambda: indexer_select(q, k, w, 2, out=np.empty(3, np.int32)), ValueError, r"out: expected shape \(2,\)"),
        (lambda: indexer_select(q, k, w, 2, lengths=[1]), ValueError, "lengths: expected None without a batch"),
        (lambda: indexer_select(q[None], k, w[None], 9, lengths=[7]), ValueError, "lengths: expected 0 to 6, got 7"),
        (
            lambda: indexer_select(q[None], k, w[None], 9, lengths=[7, 7]),
            ValueError,
            r"lengths: expected \[B\] .* B = 1",
        ),
        (lambda: indexer_select(q[None], k, w[None], -1, lengths=[6]), ValueError, "topk: expected 0 to 2147483647"),
        (lambda: indexer_select(q, k, w, 2, out=k[0, :2].view(np.int32)), ValueError, "it overlaps k"),
    ]
    for call, kind, text in cases:
        with pytest.raises(kind, match=text):
            call()
