"""cbquant.deepseek.vector_add: every set of kernels, dtype and stride against float64."""

from __future__ import annotations

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

LENGTHS = [0, 1, 3, 4, 15, 16, 17, 31, 32, 33, 100, 1023]


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def add(path: Path, a: Array, b: Array, dtype: str, threads: int = 1, stream: int = -1) -> Array:
    """The sum by a set of kernels; the memory that it goes to is filled with something else first."""
    out = np.full(a.shape, 7, np.float32).astype(DTYPES[dtype])
    path.core.vector_add(bits(a), bits(b), bits(out), threads, path.level, stream)
    return out


def exact(a: Array, b: Array, dtype: str) -> Array:
    """The float32 sum, rounded once."""
    with np.errstate(over="ignore", invalid="ignore"):
        return (a.astype(np.float32) + b.astype(np.float32)).astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", LENGTHS)
def test_sums_are_rounded_once(path: Path, dtype: str, n: int) -> None:
    a, b = draw(n, (n,), dtype), draw(n + 1, (n,), dtype, 100)
    assert same_bits(add(path, a, b, dtype), exact(a, b, dtype))
    assert_close(add(path, a, b, dtype), reference.vector_add(a, b))


@pytest.mark.parametrize(
    "types",
    [
        ("float32", "bfloat16", "float32"),
        ("bfloat16", "float32", "float16"),
        ("float16", "float16", "float32"),
        ("float16", "bfloat16", "bfloat16"),
    ],
    ids="-".join,
)
def test_dtypes_may_differ(path: Path, types: tuple[str, str, str]) -> None:
    a, b = draw(1, (3, 77), types[0]), draw(2, (3, 77), types[1])
    assert same_bits(add(path, a, b, types[2]), exact(a, b, types[2]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_ends_of_the_range(path: Path, dtype: str) -> None:
    largest = float(ml_dtypes.finfo(DTYPES[dtype]).max)
    a = np.array([np.inf, -np.inf, np.inf, np.nan, 0.0, -0.0, largest, -largest, 1e-40, 6e-8]).astype(DTYPES[dtype])
    b = np.array([1.0, 1.0, -np.inf, 1.0, -0.0, -0.0, largest, -largest, 1e-40, 6e-8]).astype(DTYPES[dtype])
    actual, expected = add(path, a, b, dtype), exact(a, b, dtype)
    assert np.array_equal(np.isnan(actual), np.isnan(expected))
    assert same_bits(actual[~np.isnan(actual)], expected[~np.isnan(expected)])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_shape_and_strides(data: st.DataObject) -> None:
    shape = (*data.draw(st.lists(st.integers(0, 5), max_size=4)), data.draw(st.integers(0, 70)))
    names = [data.draw(dtypes) for _ in range(2)]
    a, b = (draw(i, shape, name) for i, name in enumerate(names))
    views = [strided(x, tuple(data.draw(steps) for _ in shape)) for x in (a, b)]
    actual = deepseek.vector_add(*views)
    assert same_bits(actual, exact(a, b, names[0]))
    out = strided(np.zeros(shape, np.float32), (*(data.draw(steps) for _ in shape[:-1]), 1), fill=1e30)
    around = out.base if out.base is not None else out
    untouched = (around == np.float32(1e30)).sum()
    assert deepseek.vector_add(*views, out=out) is out
    assert same_bits(out, exact(a, b, "float32"))
    assert (around == np.float32(1e30)).sum() == untouched


def test_scalars_and_many_dimensions() -> None:
    one = np.array(1.5, np.float32)
    assert deepseek.vector_add(one, one).shape == ()
    assert deepseek.vector_add(one, one) == 3
    many = np.ones((1,) * 31 + (3,), np.float32)
    assert np.array_equal(deepseek.vector_add(many, many), 2 * many)
    with pytest.raises(ValueError, match="a: expected at most 32 dimensions, got 33"):
        deepseek.vector_add(many[None], many[None])


def test_inputs_of_zero_strides() -> None:
    a = np.broadcast_to(np.arange(40, dtype=np.float32), (3, 40))
    assert np.array_equal(deepseek.vector_add(a, a), 2 * a)


@pytest.mark.parametrize("threads", [2, 7])
def test_threads_change_nothing(path: Path, threads: int) -> None:
    for shape in [(2**19 + 77,), (700, 801)]:
        a, b = draw(3, shape, "float32"), draw(4, shape, "bfloat16")
        for stream in (0, 1):
            assert same_bits(add(path, a, b, "float32", threads, stream), exact(a, b, "float32"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 4, 60, 3])
def test_stores_past_the_cache(path: Path, dtype: str, offset: int) -> None:
    """The same bits wherever rows begin in a line, and nothing around them is touched."""
    a, b = draw(5, (3, 1111), dtype), draw(6, (3, 1111), dtype)
    size = a.dtype.itemsize
    memory = np.full(3 * 1200 * size + 192, 0xA5, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    out = np.ndarray((3, 1111), bits(a).dtype, memory.data, start, (1200 * size, size))
    path.core.vector_add(bits(a), bits(b), out, 1, path.level, 1)
    assert np.array_equal(out, bits(exact(a, b, dtype)))
    written = out.nbytes
    assert (memory == 0xA5).sum() >= memory.size - written
    for row in range(3):
        end = start + row * 1200 * size + 1111 * size
        assert (memory[end : end + 89 * size] == 0xA5).all()
    assert (memory[:start] == 0xA5).all()


def test_out_takes_the_bits_of_bfloat16() -> None:
    a = draw(7, (5, 9), "bfloat16")
    out = np.empty((5, 9), np.uint16)
    assert deepseek.vector_add(a, a, out=out) is out
    assert np.array_equal(out, bits(deepseek.vector_add(a, a)))


A = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((A.astype(np.float64), A), TypeError, "a: expected float32, float16 or bfloat16, got float64; .astype(np."),
        ((A, A.astype(np.uint16)), TypeError, "b: expected float32, float16 or bfloat16, got uint16"),
        ((A, A.astype(">f4")), ValueError, "b: expected native byte order, got dtype >f4"),
        ((A, A.astype(object)), TypeError, "b: expected float32, float16 or bfloat16, got object"),
        ((A, A[:, :2]), ValueError, "b: expected the shape of a, (2, 3), got (2, 2)"),
        ((A, A[0]), ValueError, "b: expected the shape of a, (2, 3), got (3,)"),
    ],
)  # fmt: skip
def test_wrong_inputs(arguments: tuple[Array, Array], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        deepseek.vector_add(*arguments)
    assert str(raised.value).startswith(message)


def read_only() -> Array:
    out = np.empty((2, 3), np.float32)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        ([], TypeError, "out: expected an ndarray, got list"),
        (np.empty((2, 3)), TypeError, "out: expected dtype float32, float16, bfloat16, got float64"),
        (np.empty((2, 3), ">f4"), ValueError, "out: expected native byte order, got dtype >f4"),
        (np.empty((3, 2), np.float32), ValueError, "out: expected shape (2, 3), got (3, 2)"),
        (np.empty((2, 6), np.float32)[:, ::2], ValueError, "out: expected a contiguous last axis, got strides (24, 8)"),
        (read_only(), ValueError, "out: expected a writable array, got a read-only one"),
        (np.lib.stride_tricks.as_strided(np.empty(3, np.float32), (2, 3), (0, 4)), ValueError,
         "out: expected memory for each element, got strides (0, 4)"),
        (A, ValueError, "out: expected memory of its own, it overlaps a"),
    ],
)  # fmt: skip
def test_wrong_out(out: Array, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        deepseek.vector_add(A, A.copy(), out=out)
    assert str(raised.value).startswith(message)


def test_views_that_interleave_do_not_overlap() -> None:
    memory = np.ones((4, 2, 3), np.float32)
    out = memory[:, 1]
    assert deepseek.vector_add(memory[:, 0], memory[:, 0], out=out) is out
    assert np.array_equal(memory, np.broadcast_to([[[1], [2]]], (4, 2, 3)))
    with pytest.raises(ValueError, match="out: expected memory of its own, it overlaps b"):
        deepseek.vector_add(np.ones((3, 2, 3), np.float32), memory[1:], out=memory[:-1])


def test_wrong_threads() -> None:
    with pytest.raises(ValueError, match="threads: expected 1 to 512, got 0"):
        deepseek.vector_add(A, A, threads=0)


def test_the_core_checks_too() -> None:
    with pytest.raises(ValueError, match=r"b: expected shape \(2, 3\), got \(3,\)"):
        _core.vector_add(A, A[0], A)
    with pytest.raises(ValueError, match="a: expected a stride of 4 bytes along axis 1, got 8"):
        _core.vector_add(np.empty((2, 6), np.float32)[:, ::2], A, A)
    with pytest.raises(TypeError, match="out: expected float32, float16 or uint16, got dtype float64"):
        _core.vector_add(A, A, A.astype(np.float64))
    with pytest.raises(TypeError, match="a: expected a NumPy array, got list"):
        _core.vector_add([], A, A)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="out: expected a writable array"):
        _core.vector_add(A, A, read_only())
    with pytest.raises(ValueError, match="a: expected at most 32 dimensions, got 33"):
        _core.vector_add(A.reshape((1,) * 31 + (2, 3)), A, A)


@pytest.mark.parametrize("name", ["cbquant.deepseek", "cbquant.deepseek._inputs", "cbquant.deepseek._add",
                                  "cbquant.reference.deepseek"])  # fmt: skip
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
