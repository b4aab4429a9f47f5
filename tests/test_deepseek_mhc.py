"""cbquant.deepseek.mhc_collapse and mhc_expand: every set of kernels, dtype and layout against float64."""

from __future__ import annotations

import doctest
import importlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbquant import _core, deepseek
from cbquant.reference import deepseek as reference
from tests.deepseek_inputs import DTYPES, Array, assert_close, bits, draw, dtypes, order, same_bits, steps, strided
from tests.paths import PATHS, Path

SHAPES = [(1, 512), (4, 512), (8, 4096), (3, 77), (33, 40), (70, 1), (1, 1), (65, 129)]
LAYOUTS = ["dst_src", "src_dst"]
ORDERS = list(itertools.permutations(range(3)))


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def collapse(path: Path, pre: Array, h: Array, out: Array | None = None, threads: int = 1, stream: int = -1) -> Array:
    """By a set of kernels; the memory that the result goes to is filled with something else first."""
    result = np.full((len(h), h.shape[2]), 7, np.float32).astype(h.dtype) if out is None else out
    path.core.mhc_collapse(bits(pre), bits(h), bits(result), threads, path.level, stream)
    return result


def expand(
    path: Path,
    block: Array,
    post: Array,
    comb: Array,
    residual: Array,
    layout: str = "dst_src",
    out: Array | None = None,
    threads: int = 1,
    stream: int = -1,
) -> Array:
    result = np.full(residual.shape, 7, np.float32).astype(residual.dtype) if out is None else out
    arrays = [bits(array) for array in (block, post, comb, residual, result)]
    path.core.mhc_expand(*arrays, layout == "src_dst", threads, path.level, stream)
    return result


def weights(tokens: int, dtype: str = "float32", seed: int = 0) -> tuple[Array, Array, Array]:
    """pre, post and comb"""
    return draw(seed, (tokens, 4), dtype), draw(seed + 1, (tokens, 4), dtype), draw(seed + 2, (tokens, 4, 4), dtype)


# --- the reference ---


def test_reference_by_loops() -> None:
    pre, post, comb = weights(3)
    h, block = draw(5, (3, 4, 2)), draw(6, (3, 2))
    collapsed, expanded, turned = (
        reference.mhc_collapse(pre, h),
        reference.mhc_expand(block, post, comb, h),
        reference.mhc_expand(block, post, comb, h, "src_dst"),
    )
    for t, d in itertools.product(range(3), range(2)):
        assert np.isclose(collapsed[t, d], sum(float(pre[t, c]) * float(h[t, c, d]) for c in range(4)))
        for dst in range(4):
            own = float(post[t, dst]) * float(block[t, d])
            mixed = [sum(float(m[t][i]) * float(h[t, s, d]) for s, i in enumerate(places)) for m, places in [
                (comb, [(dst, s) for s in range(4)]), (comb, [(s, dst) for s in range(4)])]]  # fmt: skip
            assert np.allclose([expanded[t, dst, d], turned[t, dst, d]], np.array(mixed) + own)


# --- the operators ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_collapse(path: Path, dtype: str, shape: tuple[int, int]) -> None:
    pre, _, _ = weights(shape[0], dtype)
    h = draw(9, (shape[0], 4, shape[1]), dtype)
    assert_close(collapse(path, pre, h), reference.mhc_collapse(pre, h))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_expand(path: Path, dtype: str, shape: tuple[int, int], layout: str) -> None:
    _, post, comb = weights(shape[0], dtype)
    block, residual = draw(9, shape, dtype), draw(10, (shape[0], 4, shape[1]), dtype)
    actual = expand(path, block, post, comb, residual, layout)
    assert_close(actual, reference.mhc_expand(block, post, comb, residual, layout))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 70), (40, 70), (64, 16)], ids=str)
@pytest.mark.parametrize("axes", ORDERS, ids=str)
def test_every_layout_gives_the_same_bits(
    path: Path, dtype: str, shape: tuple[int, int], axes: tuple[int, ...]
) -> None:
    """(D, 4, T) among them: through strides, whatever the layout of the other arrays is."""
    pre, post, comb = weights(shape[0])
    h, block = draw(9, (shape[0], 4, shape[1]), dtype), draw(10, shape, dtype)
    collapsed, expanded = collapse(path, pre, h), expand(path, block, post, comb, h)
    views = order(h, axes), order(pre, (1, 0)), order(post, (1, 0)), order(comb, (1, 2, 0))
    for wide in ((0, 1), (1, 0)):
        out = order(np.zeros_like(block), wide)
        assert same_bits(collapse(path, views[1], views[0], out), collapsed)
        for wide_out in ((0, 1, 2), (2, 1, 0)):
            out = order(np.zeros_like(h), wide_out)
            actual = expand(path, order(block, wide), views[2], views[3], views[0], out=out)
            assert same_bits(actual, expanded)


@pytest.mark.parametrize("types", [("bfloat16", "float32", "float16"), ("float32", "bfloat16", "bfloat16"),
                                   ("float16", "float16", "float32")], ids="-".join)  # fmt: skip
@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
def test_dtypes_may_differ(path: Path, types: tuple[str, str, str], axes: tuple[int, ...]) -> None:
    pre, post, comb = weights(40, types[0])
    h, block = order(draw(9, (40, 4, 33), types[1]), axes), draw(10, (40, 33), types[0])
    out = np.zeros((40, 33), DTYPES[types[2]])
    assert_close(collapse(path, pre, h, out), reference.mhc_collapse(pre, h))
    out = order(np.zeros((40, 4, 33), DTYPES[types[2]]), axes)
    assert_close(expand(path, block, post, comb, h, out=out), reference.mhc_expand(block, post, comb, h))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_shape_and_strides(data: st.DataObject) -> None:
    tokens, columns = data.draw(st.integers(0, 40)), data.draw(st.integers(0, 70))
    names = [data.draw(dtypes) for _ in range(3)]
    pre, post, comb = weights(tokens, names[0])
    h, block = draw(9, (tokens, 4, columns), names[1]), draw(10, (tokens, columns), names[2])
    axes = data.draw(st.sampled_from(ORDERS))

    def view(array: Array) -> Array:
        wanted = [axis for axis in axes if axis < array.ndim]
        return strided(order(array, tuple(wanted)), tuple(data.draw(steps) for _ in array.shape))

    streams = view(h)
    expected = reference.mhc_collapse(pre, h)
    actual = deepseek.mhc_collapse(view(pre), streams)
    assert actual.dtype == h.dtype
    assert_close(actual, expected)
    out = view(np.zeros(expected.shape, np.float32))
    assert deepseek.mhc_collapse(view(pre), streams, out=out) is out
    assert_close(out, expected)
    for layout in LAYOUTS:
        arguments = view(block), view(post), view(comb), streams, layout
        expected = reference.mhc_expand(block, post, comb, h, layout)
        assert_close(deepseek.mhc_expand(*arguments), expected)
        out = view(np.zeros(expected.shape, np.float32))
        assert deepseek.mhc_expand(*arguments, out=out) is out
        assert_close(out, expected)


@pytest.mark.parametrize("axes", ORDERS, ids=str)
def test_new_arrays_are_in_the_order_of_the_streams(axes: tuple[int, ...]) -> None:
    pre, post, comb = weights(6)
    h, block = order(draw(1, (6, 4, 5)), axes), draw(2, (6, 5))
    expanded = deepseek.mhc_expand(block, post, comb, h)
    assert expanded.strides == h.strides
    collapsed = deepseek.mhc_collapse(pre, h)
    assert collapsed.strides == ((20, 4) if axes.index(0) < axes.index(2) else (4, 24))
    for result in (expanded, collapsed):
        assert result.flags.writeable
        assert result.shape in ((6, 4, 5), (6, 5))


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
def test_tokens_do_not_know_each_other(path: Path, axes: tuple[int, ...]) -> None:
    pre, post, comb = weights(40)
    h, block = order(draw(9, (40, 4, 50), "float16"), axes), draw(10, (40, 50), "float16")
    collapsed, expanded = collapse(path, pre, h), expand(path, block, post, comb, h)
    for t in range(40):
        part = slice(t, t + 1)
        assert same_bits(collapse(path, pre[part], h[part])[0], collapsed[t])
        assert same_bits(expand(path, block[part], post[part], comb[part], h[part])[0], expanded[t])


@pytest.mark.parametrize("threads", [2, 7])
@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 1, 0), (1, 2, 0)], ids=str)
def test_threads_and_stores_past_the_cache_change_nothing(path: Path, threads: int, axes: tuple[int, ...]) -> None:
    pre, post, comb = weights(300)
    h, block = order(draw(9, (300, 4, 1777), "bfloat16"), axes), draw(10, (300, 1777), "bfloat16")
    if axes[-1] == 0:
        block = order(block, (1, 0))
    expected = collapse(path, pre, h), expand(path, block, post, comb, h)
    for stream in (0, 1):
        outs = order(np.zeros_like(block), (1, 0) if axes[-1] == 0 else (0, 1)), order(np.zeros_like(h), axes)
        assert same_bits(collapse(path, pre, h, outs[0], threads, stream), expected[0])
        assert same_bits(expand(path, block, post, comb, h, "dst_src", outs[1], threads, stream), expected[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("offset", "gap"), [(0, 0), (4, 0), (12, 7), (60, 32), (1, 0)])
def test_nothing_around_an_output_is_touched(path: Path, dtype: str, offset: int, gap: int) -> None:
    """Past the cache too, wherever its rows begin in a line."""
    _, post, comb = weights(3)
    residual, block = draw(1, (3, 4, 700), dtype), draw(2, (3, 700), dtype)
    size, row = residual.dtype.itemsize, 700 + gap
    memory = np.full(12 * row * size + 192, 0xA5, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    out = np.ndarray((3, 4, 700), residual.dtype, memory.data, start, (4 * row * size, row * size, size))
    expected = expand(path, block, post, comb, residual)
    assert same_bits(expand(path, block, post, comb, residual, out=out, stream=1), expected)
    gaps = np.ones(memory.size, bool)
    for i in range(12):
        begin = start + i * row * size
        gaps[begin : begin + 700 * size] = False
    assert (memory[gaps] == 0xA5).all()


def test_a_layer_of_a_prompt() -> None:
    """What split, collapse and expand do one after the other keeps the sum of the streams in bounds."""
    rng = np.random.default_rng(0)
    h = rng.standard_normal((256, 4, 512), np.float32)
    mix, scale, base = rng.standard_normal((256, 24), np.float32), np.ones(3, np.float32), np.zeros(24, np.float32)
    pre, post, comb = deepseek.mhc_sinkhorn_split(mix, scale, base)
    x = deepseek.mhc_collapse(pre, h)
    assert_close(x, reference.mhc_collapse(pre, h))
    following = deepseek.mhc_expand(np.zeros_like(x), post, comb, h)
    assert_close(following, reference.mhc_expand(np.zeros_like(x), post, comb, h))
    assert_close(following.sum(axis=1), h.sum(axis=1).astype(np.float64), 2e-2)  # columns of comb add up to 1


# --- errors ---

PRE, POST, COMB = weights(2)
H, BLOCK = draw(1, (2, 4, 3)), draw(2, (2, 3))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((PRE, H[0]), {}, "h: expected [T, 4, D], got shape (4, 3)"),
        ((PRE, H[:, :3]), {}, "h: expected [T, 4, D], got shape (2, 3, 3)"),
        ((PRE[:1], H), {}, "pre: expected [T, 4] with T = 2, got shape (1, 4)"),
        ((PRE[:, :3], H), {}, "pre: expected [T, 4] with T = 2, got shape (2, 3)"),
        ((PRE, H), {"out": np.empty((2, 4), np.float32)}, "out: expected shape (2, 3), got (2, 4)"),
        ((PRE, H), {"out": H[:, 1]}, "out: expected memory of its own, it overlaps h"),
        ((PRE, H), {"out": PRE[:, :3]}, "out: expected memory of its own, it overlaps pre"),
    ],
)
def test_wrong_arguments_of_collapse(arguments: tuple[Array, ...], options: dict[str, Array], message: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        deepseek.mhc_collapse(*arguments, **options)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"residual": H[:, :, 0]}, ValueError, "residual: expected [T, 4, D], got shape (2, 4)"),
        ({"block_out": BLOCK[:, :2]}, ValueError, "block_out: expected [T, D] with T = 2, D = 3, got shape (2, 2)"),
        ({"post": POST[0]}, ValueError, "post: expected [T, 4] with T = 2, got shape (4,)"),
        ({"comb": COMB[:, :3]}, ValueError, "comb: expected [T, 4, 4] with T = 2, got shape (2, 3, 4)"),
        ({"comb": COMB.astype(np.float64)}, TypeError, "comb: expected float32, float16 or bfloat16, got float64"),
        ({"comb_layout": "rows"}, ValueError, "comb_layout: expected one of dst_src, src_dst, got 'rows'"),
        ({"out": H}, ValueError, "out: expected memory of its own, it overlaps residual"),
        ({"out": 3}, TypeError, "out: expected an ndarray, got int"),
    ],
)
def test_wrong_arguments_of_expand(change: dict[str, object], error: type[Exception], message: str) -> None:
    arguments = {"block_out": BLOCK, "post": POST, "comb": COMB, "residual": H, **change}
    with pytest.raises(error) as raised:
        deepseek.mhc_expand(**arguments)  # type: ignore[arg-type]
    assert str(raised.value).startswith(message)


def test_streams_of_one_buffer_may_be_outputs() -> None:
    """Old and new streams that lie side by side."""
    memory = np.empty((2, 2, 4, 3), np.float32)
    memory[:, 0] = H
    out = memory[:, 1]
    assert deepseek.mhc_expand(BLOCK, POST, COMB, memory[:, 0], out=out) is out
    assert_close(out, reference.mhc_expand(BLOCK, POST, COMB, H))
    assert np.array_equal(memory[:, 0], H)


def test_the_core_checks_too() -> None:
    for message, call in {
        "h: expected three dimensions, got 2": lambda: _core.mhc_collapse(PRE, BLOCK, BLOCK),
        "h: expected shape (2, 4, 3), got (2, 3, 3)": lambda: _core.mhc_collapse(PRE, H[:, :3], BLOCK),
        "pre: expected shape (2, 4), got (2, 3)": lambda: _core.mhc_collapse(PRE[:, :3], H, BLOCK),
        "out: expected shape (2, 3), got (2, 4)": lambda: _core.mhc_collapse(PRE, H, PRE),
        "residual: expected three dimensions, got 2": lambda: _core.mhc_expand(BLOCK, POST, COMB, BLOCK, H),
        "block_out: expected shape (2, 3), got (2, 4)": lambda: _core.mhc_expand(POST, POST, COMB, H, H),
        "comb: expected shape (2, 4, 4), got (2, 4, 3)": lambda: _core.mhc_expand(BLOCK, POST, H, H, H),
        "out: expected shape (2, 4, 3), got (2, 3)": lambda: _core.mhc_expand(BLOCK, POST, COMB, H, BLOCK),
    }.items():
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            call()
        assert str(raised.value) == message


@pytest.mark.parametrize("name", ["cbquant.deepseek._mhc"])
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
