"""cbquant.deepseek.mhc_sinkhorn_split against float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbquant import _core, deepseek
from cbquant.reference import deepseek as reference
from tests.deepseek_inputs import DTYPES, Array, assert_close, bits, draw, dtypes, same_bits, steps, strided
from tests.paths import PATHS, Path

ENDS, LAYOUTS = ["rows", "columns"], ["dst_src", "src_dst"]
TOKENS = [1, 4, 8, 15, 16, 17, 100]


@pytest.fixture(params=PATHS, ids=str)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def split(
    path: Path,
    mix: Array,
    scale: Array,
    base: Array,
    iters: int = 20,
    eps: float = 1e-6,
    end: str = "rows",
    layout: str = "dst_src",
    threads: int = 1,
) -> tuple[Array, ...]:
    """By a set of kernels; the memory that the results go to is filled with something else first."""
    tokens = len(mix)
    outs = tuple(
        np.full(shape, 7, np.float32).astype(mix.dtype) for shape in ((tokens, 4), (tokens, 4), (tokens, 4, 4))
    )
    arrays = [bits(array) for array in (mix, scale, base, *outs)]
    path.core.mhc_sinkhorn_split(*arrays, iters, eps, end == "columns", layout == "src_dst", threads, path.level)
    return outs


def numbers(tokens: int, dtype: str = "float32", size: float = 2.0) -> tuple[Array, Array, Array]:
    """mix, scale and base"""
    return draw(tokens, (tokens, 24), dtype, size), draw(1, (3,), dtype), draw(2, (24,), dtype)


# --- the reference ---


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_reference_by_loops(end: str, layout: str) -> None:
    mix, scale, base = (array.astype(np.float64) for array in numbers(3))
    pre, post, comb = reference.mhc_sinkhorn_split(mix, scale, base, 3, 1e-3, end, layout)
    for t in range(3):
        x = [mix[t, i] * scale[0 if i < 4 else 1 if i < 8 else 2] + base[i] for i in range(24)]
        np.testing.assert_allclose(pre[t], [1 / (1 + np.exp(-v)) + 1e-3 for v in x[:4]])
        np.testing.assert_allclose(post[t], [2 / (1 + np.exp(-v)) for v in x[4:8]])
        m = {(d, s): x[8 + (4 * d + s if layout == "dst_src" else 4 * s + d)] for d in range(4) for s in range(4)}
        for d in range(4):
            total = sum(np.exp(m[d, s]) for s in range(4))
            m.update({(d, s): np.exp(m[d, s]) / total + 1e-3 for s in range(4)})
        for step in ["c", "r"] * 3 if end == "rows" else ["c", *["r", "c"] * 2]:
            sums = [sum(m[(i, j) if step == "c" else (j, i)] for i in range(4)) for j in range(4)]
            m = {(d, s): v / (sums[s if step == "c" else d] + 1e-3) for (d, s), v in m.items()}
        wanted = [[m[(a, b) if layout == "dst_src" else (b, a)] for b in range(4)] for a in range(4)]
        np.testing.assert_allclose(comb[t], wanted)


# --- the operator ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("iters", [1, 2, 3, 20])
def test_split(path: Path, dtype: str, end: str, layout: str, iters: int) -> None:
    for tokens in TOKENS:
        arguments = numbers(tokens, dtype)
        results = split(path, *arguments, iters, 1e-6, end, layout)
        for actual, expected in zip(
            results, reference.mhc_sinkhorn_split(*arguments, iters, 1e-6, end, layout), strict=True
        ):
            assert_close(actual, expected)


@pytest.mark.parametrize("tokens", [1, 8, 500])
@pytest.mark.parametrize("size", [1.0, 30.0])
def test_rows_add_up_to_one(path: Path, tokens: int, size: float) -> None:
    _, _, comb = split(path, *numbers(tokens, "float32", size))
    assert np.abs(comb.sum(axis=2) - 1).max() <= 1e-3
    _, _, comb = split(path, *numbers(tokens, "float32", size), end="columns")
    assert np.abs(comb.sum(axis=1) - 1).max() <= 1e-3


@pytest.mark.parametrize(("tokens", "iters"), [(1, 1), (8, 3)])
def test_few_rounds(path: Path, tokens: int, iters: int) -> None:
    arguments = numbers(tokens)
    for actual, expected in zip(
        split(path, *arguments, iters), reference.mhc_sinkhorn_split(*arguments, iters), strict=True
    ):
        assert_close(actual, expected, 1e-6)


def test_layouts_are_transposes(path: Path) -> None:
    mix, scale, base = numbers(20)
    turned = np.concatenate([mix[:, :8], mix[:, 8:].reshape(-1, 4, 4).transpose(0, 2, 1).reshape(-1, 16)], axis=1)
    moved = np.concatenate([base[:8], base[8:].reshape(4, 4).T.reshape(16)])
    one, other = split(path, mix, scale, base), split(path, turned, scale, moved, layout="src_dst")
    assert same_bits(one[2], other[2].transpose(0, 2, 1))
    assert same_bits(one[0], other[0])


@pytest.mark.parametrize("eps", [0.0, 1e-6, 0.1])
def test_eps(path: Path, eps: float) -> None:
    arguments = numbers(40)
    for actual, expected in zip(
        split(path, *arguments, 5, eps), reference.mhc_sinkhorn_split(*arguments, 5, eps), strict=True
    ):
        assert_close(actual, expected, 1e-6)


def test_large_numbers_stay_finite(path: Path) -> None:
    mix = np.array([[1e4, -1e4, 3e38, -3e38] * 6, [0.0] * 24], np.float32)
    one, zero = np.ones(3, np.float32), np.zeros(24, np.float32)
    results = split(path, mix, one, zero)
    for actual, expected in zip(results, reference.mhc_sinkhorn_split(mix, one, zero), strict=True):
        assert np.isfinite(actual).all()
        assert_close(actual, expected)
    assert np.allclose(results[2][1], 0.25)


def test_a_token_that_is_no_number_is_alone(path: Path) -> None:
    mix, scale, base = numbers(20)
    clean = split(path, mix, scale, base)
    mix[7, 3] = mix[7, 12] = np.nan
    results = split(path, mix, scale, base)
    assert np.isnan(results[0][7]).tolist() == [False, False, False, True]
    assert np.isnan(results[2][7]).any()
    for actual, expected in zip(results, clean, strict=True):
        assert same_bits(np.delete(actual, 7, axis=0), np.delete(expected, 7, axis=0))


def test_tokens_do_not_know_each_other(path: Path) -> None:
    mix, scale, base = numbers(37, "float16")
    together = split(path, mix, scale, base)
    for t in range(37):
        for actual, expected in zip(split(path, mix[t : t + 1], scale, base), together, strict=True):
            assert same_bits(actual[0], expected[t])


@pytest.mark.parametrize("threads", [2, 7])
def test_threads_change_nothing(path: Path, threads: int) -> None:
    arguments = numbers(1500)
    one, many = split(path, *arguments), split(path, *arguments, threads=threads)
    assert all(map(same_bits, one, many))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_shape_and_strides(data: st.DataObject) -> None:
    tokens = data.draw(st.integers(0, 40))
    names = [data.draw(dtypes) for _ in range(3)]
    arrays = [array.astype(DTYPES[name]) for array, name in zip(numbers(tokens), names, strict=True)]
    views = [strided(array, tuple(data.draw(steps) for _ in array.shape)) for array in arrays]
    iters, end, layout = data.draw(st.integers(1, 4)), *(data.draw(st.sampled_from(words)) for words in (ENDS, LAYOUTS))
    expected = reference.mhc_sinkhorn_split(*arrays, iters, end=end, comb_layout=layout)
    results = deepseek.mhc_sinkhorn_split(*views, iters, end=end, comb_layout=layout)
    outs = [strided(np.zeros(x.shape, np.float32), (*(data.draw(steps) for _ in x.shape[1:]), 1)) for x in expected]
    again = deepseek.mhc_sinkhorn_split(*views, iters, end=end, comb_layout=layout, out=outs)
    for actual, written, out, wanted in zip(results, again, outs, expected, strict=True):
        assert actual.dtype == arrays[0].dtype
        assert_close(actual, wanted)
        assert written is out
        assert_close(out, wanted)


def test_outputs_may_differ_in_dtype() -> None:
    arguments = numbers(18)
    outs = np.empty((18, 4), np.float16), np.empty((18, 4), np.uint16), np.empty((18, 4, 4), np.float32)
    expected = reference.mhc_sinkhorn_split(*arguments)
    deepseek.mhc_sinkhorn_split(*arguments, out=outs)
    assert_close(outs[0], expected[0])
    assert_close(outs[1].view(DTYPES["bfloat16"]), expected[1])
    assert_close(outs[2], expected[2])


# --- errors ---

MIX, SCALE, BASE = numbers(2)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"mix": MIX[0]}, ValueError, "mix: expected [T, 24], got shape (24,)"),
        ({"mix": MIX[:, :23]}, ValueError, "mix: expected [T, 24], got shape (2, 23)"),
        ({"scale": SCALE[:2]}, ValueError, "scale: expected [3], got shape (2,)"),
        ({"base": BASE[:8]}, ValueError, "base: expected [24], got shape (8,)"),
        ({"mix": MIX.astype(np.int32)}, TypeError, "mix: expected float32, float16 or bfloat16, got int32"),
        ({"iters": 0}, ValueError, "iters: expected 1 to 10000, got 0"),
        ({"iters": 1.5}, TypeError, "iters: expected a whole number from 1, got float"),
        ({"eps": -1e-6}, ValueError, "eps: expected 0 or more, got -1e-06"),
        ({"eps": np.inf}, ValueError, "eps: expected a finite number, got inf"),
        ({"eps": True}, TypeError, "eps: expected a number, got bool"),
        ({"end": "row"}, ValueError, "end: expected one of rows, columns, got 'row'"),
        ({"comb_layout": None}, TypeError, "comb_layout: expected one of dst_src, src_dst, got NoneType"),
        ({"out": (None, None)}, ValueError, "out: expected 3 arrays, got 2"),
        ({"out": (None, np.empty((2, 4)), None)}, TypeError, "out[1]: expected dtype float32, float16, bfloat16, got"),
        ({"out": (None, None, np.empty((2, 16), np.float32))}, ValueError, "out[2]: expected shape (2, 4, 4), got"),
        ({"out": (MIX[:, :4], None, None)}, ValueError, "out[0]: expected memory of its own, it overlaps mix"),
        ({"out": (SCALE[:1].repeat(8).reshape(2, 4)[:, ::-1], None, None)}, ValueError,
         "out[0]: expected a contiguous last axis, got strides (16, -4)"),
    ],
)  # fmt: skip
def test_wrong_arguments(change: dict[str, object], error: type[Exception], message: str) -> None:
    arguments = {"mix": MIX, "scale": SCALE, "base": BASE, **change}
    with pytest.raises(error) as raised:
        deepseek.mhc_sinkhorn_split(**arguments)  # type: ignore[arg-type]
    assert str(raised.value).startswith(message)


def test_the_core_checks_too() -> None:
    pre, post, comb = np.empty((2, 4), np.float32), np.empty((2, 4), np.float32), np.empty((2, 4, 4), np.float32)
    for message, arguments in {
        "mix: expected two dimensions, got 1": (BASE, SCALE, BASE, pre, post, comb),
        "mix: expected shape (2, 24), got (2, 4)": (pre, SCALE, BASE, pre, post, comb),
        "scale: expected shape (3,), got (24,)": (MIX, BASE, BASE, pre, post, comb),
        "out[2]: expected shape (2, 4, 4), got (2, 4)": (MIX, SCALE, BASE, pre, post, post),
        "mix: expected a stride of 4 bytes along axis 1, got 8": (
            MIX.repeat(2, axis=1)[:, ::2],
            SCALE,
            BASE,
            pre,
            post,
            comb,
        ),
        "iters: expected 1 and up, got 0": (MIX, SCALE, BASE, pre, post, comb, 0),
    }.items():
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            _core.mhc_sinkhorn_split(*arguments)  # type: ignore[arg-type]
        assert str(raised.value) == message
