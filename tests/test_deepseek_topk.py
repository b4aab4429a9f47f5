"""indexer_topk on every path: exactly a stable sort, whatever the scores and however the work is cut."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import cbquant
from cbquant.deepseek import indexer_topk
from cbquant.reference import deepseek as reference
from tests.paths import PATHS, Path

SIZES = [(64, 8), (256, 32), (1024, 512), (65_536, 512), (1, 1), (7, 7), (65, 64), (5000, 4999), (20_000, 20_000)]
SPECIAL = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38, 1, -1], np.float32)


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def topk(path: Path, score: NDArray[Any], k: int, threads: int = 1, lengths: Any = None) -> NDArray[np.int32]:
    """Of rows of scores; the memory that the indices go to is filled with something else first."""
    out = np.full((len(score), k), -7, np.int32)
    path.core.indexer_topk(score, k, out, threads, path.level, lengths)
    return out


def drawn(kind: str, n: int) -> NDArray[np.float32]:
    rng = np.random.default_rng([n, len(kind)])
    score = rng.standard_normal(n).astype(np.float32)
    if kind == "ties":
        score = (np.round(score * 2) / 2 * rng.choice([-1, 1], n)).astype(np.float32)
    elif kind == "rising":
        score.sort()
    elif kind == "falling":
        score = np.sort(score)[::-1].copy()
    elif kind == "equal":
        score[:] = -0.25
    elif kind == "mostly NaN":
        score[rng.random(n) < 0.995] = np.nan
    elif kind == "special":
        score = rng.choice(SPECIAL, n)
    elif kind == "in runs":  # what a sample of every so many sees is not what there is
        score[np.arange(n) % 1024 < 16] += 100
    return score


KINDS = ["random", "ties", "rising", "falling", "equal", "mostly NaN", "special", "in runs"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_as_a_stable_sort(path: Path, kind: str) -> None:
    for n, k in SIZES:
        score = drawn(kind, n)
        assert np.array_equal(topk(path, score[None], k)[0], reference.indexer_topk(score, k)), (n, k)


@pytest.mark.parametrize("kind", KINDS)
def test_a_million_scores_on_any_number_of_threads(kind: str) -> None:
    score = drawn(kind, 2**20 + 37)
    expected = reference.indexer_topk(score, 2**19 + 1)
    for threads in (1, 2, 7):
        assert np.array_equal(indexer_topk(score, 512, threads=threads), expected[:512])
        assert np.array_equal(indexer_topk(score, 2**19 + 1, threads=threads), expected)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision(path: Path, dtype: Any) -> None:
    """Many ties, because there are few numbers."""
    with np.errstate(over="ignore"):
        for n, k in ((64, 8), (9000, 512)):
            score = np.concatenate([SPECIAL, drawn("random", n)]).astype(dtype)
            bits = score if dtype == np.float16 else score.view(np.uint16)
            assert np.array_equal(topk(path, bits[None], k)[0], reference.indexer_topk(score, k))


@given(st.data())
def test_any_scores(data: st.DataObject) -> None:
    floats = st.one_of(st.sampled_from(SPECIAL.tolist()), st.integers(-3, 3), st.floats(width=32))
    score = np.array(data.draw(st.lists(floats, max_size=200)), np.float32)
    k = data.draw(st.integers(0, len(score)))
    assert np.array_equal(indexer_topk(score, k), reference.indexer_topk(score, k))


def test_a_batch_is_its_rows(path: Path) -> None:
    score = np.stack([drawn(kind, 3000) for kind in KINDS])
    alone = np.concatenate([topk(path, row[None], 100) for row in score])
    for threads in (1, 2, 7):
        assert np.array_equal(topk(path, score, 100, threads), alone)
    tall = np.tile(score, (40, 1))  # enough for threads
    for threads in (1, 2, 7):
        assert np.array_equal(topk(path, tall, 100, threads), np.tile(alone, (40, 1)))


@pytest.mark.parametrize("kind", KINDS)
def test_only_so_many_scores_of_a_row_count(path: Path, kind: str) -> None:
    for n, k in [(7, 3), (40, 64), (300, 300), (20_000, 512), (9000, 9001)]:
        lengths = np.array([n, 0, 1, n // 2, n - 1, k % (n + 1), n // 3], np.int64)
        score = np.tile(drawn(kind, n), (len(lengths), 1))
        expected = reference.indexer_topk(score, k, lengths=lengths)
        for row, count in zip(score, lengths, strict=True):
            row[count:] = np.inf
        for threads in (1, 3):
            assert np.array_equal(topk(path, score, k, threads, lengths), expected), (n, k)


def test_long_rows_of_several_lengths_on_any_number_of_threads() -> None:
    score = np.stack([drawn("ties", 2**20 + 5)] * 2)
    for lengths in ([2**20 + 5, 2**20], [300, 2**18 + 7], [0, 2**19]):
        expected = reference.indexer_topk(score, 512, lengths=lengths)
        for threads in (1, 2, 7):
            assert np.array_equal(indexer_topk(score, 512, lengths=lengths, threads=threads), expected)


@given(st.data())
def test_any_lengths(data: st.DataObject) -> None:
    batch, n, k = (data.draw(st.integers(0, most)) for most in (4, 60, 80))
    score = np.round(np.random.default_rng(n).standard_normal((batch, n))).astype(np.float32)
    lengths = np.array([data.draw(st.integers(0, n)) for _ in range(batch)], data.draw(st.sampled_from(["u1", "i8"])))
    out = np.empty((batch, k), np.int32)
    assert indexer_topk(score, k, lengths=lengths, out=out) is out
    assert np.array_equal(out, reference.indexer_topk(score, k, lengths=lengths))


def test_errors_of_lengths() -> None:
    score, memory = np.zeros((2, 4), np.float32), np.zeros(8, np.int32)
    cases: list[tuple[Any, type[Exception], str]] = [
        ([5, 1], ValueError, "lengths: expected 0 to 4, got 5 of sequence 0"),
        ([1, -1], ValueError, "lengths: expected 0 to 4, got -1 of sequence 1"),
        ([1], ValueError, r"lengths: expected \[B\] with B = 2, got shape \(1,\)"),
        (3, ValueError, r"lengths: expected \[B\] with B = 2, got shape \(\)"),
        ([1.0, 2.0], TypeError, "lengths: expected integers, got float64"),
        (memory[:2], ValueError, "out: expected memory of its own, it overlaps lengths"),
    ]
    for lengths, error, text in cases:
        with pytest.raises(error, match=text):
            indexer_topk(score, 4, lengths=lengths, out=memory.reshape(2, 4))
    assert not memory.any()
    with pytest.raises(ValueError, match="lengths: expected None without a batch"):
        indexer_topk(score[0], 2, lengths=[1])
    with pytest.raises(ValueError, match="k: expected 0 to 2147483647, got -1"):
        indexer_topk(score, -1, lengths=[1, 1])
    with pytest.raises(ValueError, match="lengths: expected 2 rows of 8 bytes, got 8 bytes"):
        cbquant._core.indexer_topk(score, 2, np.empty((2, 2), np.int32), lengths=np.zeros(1, np.int64))


def test_strides_and_places(path: Path) -> None:
    score = np.stack([drawn("ties", 10_000), drawn("random", 10_000), drawn("special", 10_000)])
    expected = reference.indexer_topk(score, 77)
    assert np.array_equal(topk(path, score[::-1], 77), expected[::-1])
    wide = np.empty((3, 20_000), np.float32)
    wide[:, 5:10_005] = score
    assert np.array_equal(topk(path, wide[:, 5:10_005], 77), expected)
    memory = np.empty(score.nbytes + 4, np.uint8)
    for offset in (1, 2, 3):
        moved = memory[offset : offset + score.nbytes].view(np.float32).reshape(score.shape)
        moved[:] = score
        assert np.array_equal(topk(path, moved, 77), expected)
    assert np.array_equal(indexer_topk(score[:, ::-2], 9), reference.indexer_topk(score[:, ::-2], 9))


def test_out_and_empty_results() -> None:
    score = drawn("random", 100)
    out = np.empty(5, np.int32)
    assert indexer_topk(score, 5, out=out) is out
    assert np.array_equal(out, reference.indexer_topk(score, 5))
    assert indexer_topk(score, 0).shape == (0,)
    assert indexer_topk(np.empty((0, 9), np.float32), 3).shape == (0, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((np.zeros(4, np.float32), 5), ValueError, "k: expected 0 to 4, got 5"),
        ((np.zeros(4, np.float32), -1), ValueError, "k: expected 0 to 4, got -1"),
        ((np.zeros(4, np.float32), 2.0), TypeError, "k: expected a whole number from 0, got float"),
        ((np.zeros(4), 2), TypeError, "score: expected float32, float16 or bfloat16, got float64"),
        ((np.zeros((2, 2, 2), np.float32), 2), ValueError, r"score: expected \[n\] or \[B, n\], got shape \(2, 2, 2\)"),
        ((np.float32(1), 0), ValueError, r"score: expected \[n\] or \[B, n\], got shape \(\)"),
    ],
)
def test_errors_name_the_argument(arguments: tuple[Any, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        indexer_topk(*arguments)


def test_errors_of_out() -> None:
    score = np.zeros(4, np.float32)
    read_only = np.empty(2, np.int32)
    read_only.flags.writeable = False
    cases = [
        (np.empty(3, np.int32), ValueError, r"out: expected shape \(2,\), got \(3,\)"),
        (np.empty(2, np.int64), TypeError, "out: expected dtype int32, got"),
        (np.empty(4, np.int32)[::2], ValueError, "out: expected a C-contiguous array"),
        (read_only, ValueError, "out: expected a writable array"),
        ([0, 0], TypeError, "out: expected an ndarray, got list"),
        (score[:2].view(np.int32), ValueError, "out: expected memory of its own, it overlaps score"),
    ]
    for out, error, text in cases:
        with pytest.raises(error, match=text):
            indexer_topk(score, 2, out=out)
    with pytest.raises(ValueError, match="threads: expected 1 to"):
        indexer_topk(score, 2, threads=0)
    with pytest.raises(ValueError, match="out: expected 1 rows of 8 bytes, got 12 bytes"):
        cbquant._core.indexer_topk(score[None], 2, np.empty(3, np.int32))
