"""cbquant.cuda.deepseek with the module built on the shim: every operator with arrays of the host and of the device,
arguments that do not fit, graphs."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cbquant
from cbquant import cuda
from cbquant.cuda import deepseek
from cbquant.reference import deepseek as reference
from tests.attention_inputs import ATTENTION
from tests.cuda.device_arrays import WithDLPack, WithInterface, make_library, upload
from tests.cuda.product_inputs import tensor
from tests.cuda.products import from_bf16, to_bf16
from tests.cuda.shim import Shim
from tests.deepseek_inputs import DTYPES, assert_close, draw, order

T, D = 3, 40


def cases(dtype: str) -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Arguments of each operator."""
    q, k, v = draw(0, (2, 6, 64), dtype), draw(1, (2, 3, 50, 64), dtype), draw(2, (2, 3, 50, 64), dtype)
    logits = draw(3, (T, 32), dtype, 3)
    return {
        "vector_add": ((draw(0, (2, 3, 2, 2, D), dtype), draw(1, (2, 3, 2, 2, D), dtype)), {}),
        "mhc_sinkhorn_split": (
            (draw(0, (T, 24), dtype), draw(1, (3,), dtype), draw(2, (24,), dtype)),
            {"iters": 3, "end": "columns", "comb_layout": "src_dst"},
        ),
        "mhc_collapse": ((draw(0, (T, 4), dtype), order(draw(1, (T, 4, D), dtype), (2, 1, 0))), {}),
        "mhc_expand": (
            (draw(0, (T, D), dtype), draw(1, (T, 4), dtype), draw(2, (T, 4, 4), dtype), draw(3, (T, 4, D), dtype)),
            {"comb_layout": "src_dst"},
        ),
        "partial_rope": ((draw(0, (2, T, 5, 70), dtype), np.array([0, 5, 1_000_000])), {"pairs": "interleaved"}),
        "partial_rope with frequencies": (
            (draw(0, (T, 70), dtype), np.array([0, 0.5, -1_000_000])),
            {"n_rot": 6, "frequencies": np.array([2.5, -0.125, 0])},
        ),
        "compressor_pool": (
            (draw(0, (T, 8, 1), dtype), draw(1, (T, 8, D), dtype), draw(2, (8, D), dtype)),
            {"ape_on": "gate"},
        ),
        "router_sqrtsoftplus": ((logits, draw(4, (32,), dtype)), {}),
        "route": ((logits, np.zeros(32, DTYPES[dtype]), 4), {"scale": 2.5, "normalize": True}),
        "indexer_score": ((draw(0, (2, 5, 32), dtype), draw(1, (70, 32), dtype), draw(2, (2, 5), dtype)), {}),
        "indexer_topk": ((np.round(draw(0, (2, 200), dtype) * 4), 9), {}),
        "indexer_topk with lengths": (
            (np.round(draw(0, (3, 20), dtype) * 4), 30),
            {"lengths": np.array([20, 0, 7], np.int32)},
        ),
        "sdpa_decode_sink": ((q, k, v, draw(5, (6,), dtype)), {"lengths": np.array([50, 7])}),
        "sparse_sdpa_decode": ((q, k, k, np.array([3, 49, -1, 0])), {"sink": draw(5, (6,), dtype)}),
        "mla_decode": (latent(dtype), {}),
    }


def operator(name: str, module: Any = deepseek) -> Any:
    """What a case calls: its name may go on behind a blank."""
    return getattr(module, name.split()[0])


def latent(dtype: str) -> tuple[Any, ...]:
    up = draw(2, (4, 16, 96), dtype, 0.2)
    return draw(0, (4, 16), dtype), draw(1, (4, 8), dtype), up, draw(3, (30, 96), dtype), draw(4, (30, 8), dtype)


def tolerance(name: str, dtype: str) -> float | None:
    if name == "indexer_score":
        return 1e-4
    return ATTENTION[dtype] if "decode" in name else None


def check(name: str, actual: Any, expected: Any, dtype: str) -> None:
    results = actual if isinstance(actual, tuple) else (actual,)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    for a, b in zip(results, wanted, strict=True):
        if np.asarray(b).dtype.kind == "i":
            assert a.dtype == np.int32
            assert np.array_equal(a, b)
        else:
            assert_close(a, np.asarray(b), tolerance(name, dtype))


def on_device(shim: Shim, value: Any, kind: Callable[[Any], Any] = WithDLPack) -> Any:
    return kind(upload(shim, value)) if isinstance(value, np.ndarray) else value


def to_host(result: Any) -> Any:
    return tuple(to_host(r) for r in result) if isinstance(result, tuple) else result.to_numpy()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", cases("float32"))
def test_arrays_of_the_host(native: Any, name: str, dtype: str) -> None:
    args, options = cases(dtype)[name]
    check(name, operator(name)(*args, **options), operator(name, reference)(*args, **options), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", cases("float32"))
def test_arrays_of_the_device(shim: Shim, native: Any, name: str, dtype: str) -> None:
    args, options = cases(dtype)[name]
    given = [on_device(shim, a) for a in args]
    words = {key: on_device(shim, value) for key, value in options.items()}
    result = operator(name)(*given, **words)
    check(name, to_host(result), operator(name, reference)(*args, **options), dtype)


@pytest.mark.parametrize("name", cases("float32"))
def test_out_while_a_graph_is_captured(shim: Shim, native: Any, stream: int, name: str) -> None:
    """With `out=` on the device nothing is allocated and nothing waited for, once the workspace is there."""
    args, options = cases("float32")[name]
    given = [on_device(shim, a) for a in args]
    words = {key: on_device(shim, value) for key, value in options.items()}
    function = operator(name)
    expected = function(*args, **options)
    results = expected if isinstance(expected, tuple) else (expected,)
    places = [upload(shim, np.zeros(r.shape, r.dtype)) for r in results]
    outs = [WithDLPack(p) for p in places]
    out = tuple(outs) if isinstance(expected, tuple) else outs[0]
    function(*given, **words, out=out, stream=stream)
    for p in places:
        p[...] = 0
    live = shim.library.shim_live(None)
    shim.library.shim_capture(ctypes.c_void_p(stream), 1)
    try:
        function(*given, **words, out=out, stream=stream)
        with pytest.raises(cuda.CudaError, match="capture"):
            function(*given, **words, stream=stream)
        with pytest.raises(cuda.CudaError, match="is an ndarray, whose copy cannot be captured"):
            function(*args, **words, out=out, stream=stream)
    finally:
        shim.library.shim_capture(ctypes.c_void_p(stream), 0)
    assert shim.library.shim_live(None) == live
    for p, r in zip(places, results, strict=True):
        assert p.tobytes() == np.ascontiguousarray(r).tobytes()


def test_results_in_the_memory_of_a_library_that_allocates(
    shim: Shim, native: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's arrays: of the dtype of the first, of float32 and of int32, and no memory of ours."""

    class Tensor(WithDLPack):
        __module__ = "library_that_allocates"

        def new_empty(self, shape: tuple[int, ...], dtype: Any = None) -> Tensor:
            return Tensor(upload(shim, np.zeros(shape, dtype or self.array.dtype)))

    library = make_library("library_that_allocates")
    library.__dict__.update(int32=np.int32, float32=np.float32, float16=np.float16)
    monkeypatch.setattr(cuda.DeviceArray, "empty", None)
    for name, (args, options) in cases("float16").items():
        if name.startswith(("vector_add", "route", "indexer")):
            given = [on_device(shim, a, Tensor) for a in args]
            words = {key: on_device(shim, value, Tensor) for key, value in options.items()}
            result = operator(name)(*given, **words)
            results = result if isinstance(result, tuple) else (result,)
            assert all(isinstance(r, Tensor) for r in results)
            actual = tuple(r.array for r in results)
            check(
                name, actual if len(actual) > 1 else actual[0], operator(name, reference)(*args, **options), "float16"
            )


def test_rope_in_place(shim: Shim, native: Any) -> None:
    x, positions = draw(0, (T, 64)), np.arange(T)
    place = upload(shim, x)
    given = WithDLPack(place)
    assert deepseek.partial_rope(given, positions, out=given) is given
    assert_close(place, reference.partial_rope(x, positions))


def test_add_into_an_operand(shim: Shim, native: Any) -> None:
    a, b = draw(0, (7,)), draw(1, (7,))
    place = upload(shim, b)
    given = WithDLPack(place)
    deepseek.vector_add(WithDLPack(upload(shim, a)), given, out=given)
    assert np.array_equal(place, a + b)


def test_an_interface_where_uint16_stands_for_bfloat16(shim: Shim, native: Any) -> None:
    a = draw(0, (5,), "bfloat16")
    result = deepseek.vector_add(WithInterface(upload(shim, a)), WithInterface(upload(shim, a)))
    assert_close(result.to_numpy(), 2 * a.astype(np.float64))


def test_select_is_score_and_topk(native: Any) -> None:
    q, k, w = draw(0, (2, 5, 32)), draw(1, (1500, 32)), draw(2, (2, 5))
    for count in (0, 7, 600):
        expected = reference.indexer_topk(deepseek.indexer_score(q, k, w), count)
        assert np.array_equal(deepseek.indexer_select(q, k, w, count), expected)
        lengths = np.array([1500, 70])
        expected = reference.indexer_topk(deepseek.indexer_score(q, k, w), count, lengths=lengths)
        assert np.array_equal(deepseek.indexer_select(q, k, w, count, lengths=lengths), expected)
    assert np.array_equal(deepseek.indexer_select(q, k[:3], w, 5, lengths=[3, 0])[:, 3:], np.full((2, 2), -1))
    one = deepseek.indexer_select(q[0], k, w[0], 7)
    assert np.array_equal(one, deepseek.indexer_select(q, k, w, 7)[0])


@pytest.mark.parametrize("window", [0, 3, 128, 5000])
def test_gather_list(native: Any, window: int) -> None:
    rng = np.random.default_rng(window)
    for n, k in ((1, 1), (50, 20), (3000, 1024)):
        topk = rng.integers(-1, n, (2, k))
        result = deepseek.gather_list(topk, n, window)
        assert result.shape == (2, min(n, k + window))
        for row, chosen in zip(result, topk, strict=True):
            wanted = reference.gather_list(chosen, n, window)
            assert row[: len(wanted)].tolist() == wanted.tolist()
            assert (row[len(wanted) :] == -1).all()


def test_gather_lists_of_several_lengths(shim: Shim, native: Any) -> None:
    topk, n, window = np.array([[5, 0, -1], [1, 1, 0], [-1, -1, -1]]), np.array([60, 2, 0]), np.array([4, 9, 2])
    expected = reference.gather_list(topk, n, window)
    result = deepseek.gather_list(topk, n, window)
    assert result.shape == (3, 7)  # of 60 positions three and four
    assert np.array_equal(result[:, : expected.shape[1]], expected)
    assert (result[:, expected.shape[1] :] == -1).all()
    assert np.array_equal(deepseek.gather_list(topk, 60, window)[:, :11], reference.gather_list(topk, 60, window))
    far = deepseek.gather_list(on_device(shim, topk), on_device(shim, n.astype(np.int32)), 4).to_numpy()
    assert np.array_equal(far[:, :6], reference.gather_list(topk, n, 4))
    assert (far[:, 6:] == -1).all()
    for wrong, text in (([1, 2], "n_kv: expected a number, or [B] with B = 3"), ([-1, 2, 3], "n_kv: expected 0 to")):
        with pytest.raises(ValueError, match=re.escape(text)):
            deepseek.gather_list(topk, wrong)
    with pytest.raises(ValueError, match=r"n_kv: expected \[B\] with B = 3, got shape \(2,\)"):
        deepseek.gather_list(topk, on_device(shim, n[:2]))
    with pytest.raises(ValueError, match="n_kv: expected a number for one list, got an array"):
        deepseek.gather_list(topk[0], on_device(shim, n))
    with pytest.raises(TypeError, match="window: expected numbers on the host"):
        deepseek.gather_list(topk, 60, on_device(shim, window))


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("precision", ["bf16", "f32"])
@pytest.mark.parametrize("clip", [None, 0.5, np.float32(3)])
def test_moe_ffn(shim: Shim, native: Any, where: str, precision: str, clip: Any) -> None:
    experts, f, k, n = 3, 64, 32, 10
    gate, up, down = (tensor("q8_0", experts, *s) for s in ((f, k), (f, k), (n, f)))
    x = draw(0, (5, k))
    ids = np.array([[0, 2], [1, -1], [-1, -1], [2, 2], [1, 0]], np.int32)
    weights = np.random.default_rng(1).random((5, 2)).astype(np.float32)
    loaded = [cuda.load(w) for w in (gate, up, down)]
    given = (x, ids, weights) if where == "host" else tuple(WithDLPack(upload(shim, a)) for a in (x, ids, weights))
    result = deepseek.moe_ffn(given[0], *loaded, *given[1:], precision=precision, limit=clip)
    y = result if where == "host" else result.to_numpy()
    rounded = (from_bf16(to_bf16(w.dequant())) for w in (gate, up, down))
    expected = reference.moe_ffn(x, *rounded, ids, weights, limit=clip)
    limit = {"bf16": 1e-2, "f32": 1e-5}[precision]
    assert np.linalg.norm(y - expected) < limit * np.linalg.norm(expected)
    assert not y[2].any()


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("b: expected a's shape, (2,), got (3,)", lambda: deepseek.vector_add(np.ones(2, "f"), np.ones(3, "f"))),
        ("a: expected float32, float16 or bfloat16, got float64", lambda: deepseek.vector_add([1.0], np.ones(1, "f"))),
        ("out: expected shape", lambda: deepseek.vector_add(*[np.ones(2, "f")] * 2, out=np.ones(3, "f"))),
        ("k: expected 0 to 3, got 4", lambda: deepseek.indexer_topk(np.ones(3, "f"), 4)),
        ("lengths: expected 0 to 3, got 4", lambda: deepseek.indexer_topk(np.ones((1, 3), "f"), 9, lengths=[4])),
        ("lengths: expected [B] with B = 1", lambda: deepseek.indexer_topk(np.ones((1, 3), "f"), 9, lengths=[3, 3])),
        ("lengths: expected None without", lambda: deepseek.indexer_topk(np.ones(3, "f"), 2, lengths=[3])),
        (
            "lengths: expected integers, got float64",
            lambda: deepseek.indexer_topk(np.ones((1, 3), "f"), 9, lengths=[1.0]),
        ),
        ("indices: expected -1 to 3, got 4", lambda: deepseek.sparse_sdpa_decode(*heads(), [0, 4])),
        ("lengths: expected None without a batch", lambda: deepseek.sdpa_decode_sink(*heads(), None, lengths=[1])),
        ("v: expected at most 1024 columns", lambda: deepseek.sdpa_decode_sink(*heads(1025), None)),
        ("topk: expected at most 1024 positions", lambda: deepseek.gather_list(np.zeros(1025, int), 9)),
        ("n_rot: expected an even number", lambda: deepseek.partial_rope(np.ones((1, 4), "f"), [0], n_rot=3)),
        ("theta: expected a number above 0", lambda: deepseek.partial_rope(np.ones((1, 4), "f"), [0], 2, theta=0)),
        ("positions: expected [T] with T = 1", lambda: deepseek.partial_rope(np.ones((1, 4), "f"), [0, 1], 2)),
        ("positions: expected finite numbers up to 2^53, got nan", lambda: rope([1, 2], positions=[np.nan])),
        ("frequencies: expected [2], got shape (1,)", lambda: rope([1])),
        ("frequencies: expected finite numbers up to 2^53, got inf", lambda: rope([1, np.inf])),
        ("frequencies: expected integers or real numbers, got complex128", lambda: rope([1, 1j])),
        ("theta: expected its default where frequencies are given, got 160000", lambda: rope([1, 2], theta=16e4)),
        ("k: expected 1 to 3, got 5", lambda: deepseek.route(np.ones((1, 3), "f"), np.ones(3, "f"), 5)),
    ],
)
def test_what_is_wrong_is_said(native: Any, message: str, call: Callable[[], Any]) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    assert message in str(caught.value)


def rope(frequencies: Any, positions: Any = (0,), **options: Any) -> Any:
    return deepseek.partial_rope(np.ones((1, 4), np.float32), positions, 4, frequencies=frequencies, **options)


def heads(width: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    q, k = np.ones((2, width), np.float32), np.ones((1, 4, width), np.float32)
    return q, k, k


def test_memory_that_overlaps_is_refused(shim: Shim, native: Any) -> None:
    place = upload(shim, np.zeros((4, 8), np.float32))
    with pytest.raises(ValueError, match="out: expected memory of its own, it overlaps a"):
        deepseek.vector_add(WithDLPack(place[:3]), WithDLPack(place[:3]), out=WithDLPack(place[1:]))
    with pytest.raises(ValueError, match="out: expected memory of its own, it overlaps h"):
        deepseek.mhc_collapse(
            np.ones((2, 4), np.float32), WithDLPack(place.reshape(2, 4, 4)), out=WithDLPack(place[:2, :4])
        )
    ones = np.ones((4, 8), np.float32)
    narrow = place.view(np.float16).reshape(8, 8)[:4]  # whose elements are not where those of `out` are
    with pytest.raises(ValueError, match="out: expected memory of its own, it overlaps a"):
        deepseek.vector_add(WithDLPack(narrow), ones, out=WithDLPack(place))
    with pytest.raises(ValueError, match=r"out: expected elements that do not overlap, got strides \(0, 1\)"):
        deepseek.vector_add(ones, ones, out=WithInterface(place, strides=(0, 4)))
    w, rows = cuda.load(tensor("q8_0", 1, 32, 32)), place[:1]
    x, factors = np.ones((1, 32), np.float32), WithDLPack(rows[:, :1])
    with pytest.raises(ValueError, match="out: expected memory of its own, it overlaps weights"):
        deepseek.moe_ffn(x, w, w, w, [[0]], factors, out=WithDLPack(place.reshape(1, 32)))
    assert not place.any()


def test_scalars_stay_scalars(native: Any) -> None:
    result = deepseek.vector_add(np.array(1, np.float32), np.array(2, np.float32))
    assert (result.shape, result) == ((), 3)


def test_a_sink_that_takes_all(native: Any) -> None:
    q, k, v = heads()
    sink = np.array([np.inf, 0], np.float32)
    expected = cbquant.deepseek.sdpa_decode_sink(q, k, v, sink)
    result = deepseek.sdpa_decode_sink(q, k, v, sink)
    assert not result[0].any()
    assert_close(result, expected, ATTENTION["float32"])


def test_moe_ffn_of_nothing(native: Any, stream: int) -> None:
    w = cuda.load(tensor("q8_0", 2, 32, 32))
    for t, k in ((0, 2), (3, 0), (0, 0)):  # a stream without a workspace, and one with
        for on in (stream, 0):
            x, ids = np.ones((t, 32), np.float32), np.zeros((t, k), int)
            result = deepseek.moe_ffn(x, w, w, w, ids, np.ones((t, k)), out=np.ones((t, 32), np.float32), stream=on)
            assert result.shape == (t, 32)
            assert not result.any()


def test_moe_ffn_looks_at_out_first(shim: Shim, native: Any) -> None:
    w = cuda.load(tensor("q8_0", 1, 32, 32))
    before = shim.library.shim_launches()
    with pytest.raises(ValueError, match="out: expected shape"):
        deepseek.moe_ffn(np.ones((1, 32), np.float32), w, w, w, [[0]], [[1.0]], out=np.ones((1, 9), np.float32))
    assert shim.library.shim_launches() == before


@pytest.mark.parametrize("limit", [0, -1.0, np.nan, np.inf, "10", True])
def test_a_limit_that_cannot_be(native: Any, limit: Any) -> None:
    w = cuda.load(tensor("q8_0", 1, 32, 32))
    given = np.zeros((1, 32), np.float32), w, w, w, np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32)
    with pytest.raises((ValueError, TypeError), match="limit: expected a"):
        deepseek.moe_ffn(*given, limit=limit)


def test_without_a_gpu_there_is_no_result() -> None:
    if cuda.is_available():
        pytest.skip("a GPU is here")
    with pytest.raises(cuda.CudaError):
        deepseek.vector_add(np.ones(2, np.float32), np.ones(2, np.float32))


def test_every_operator_of_the_cpu_is_there() -> None:
    assert set(deepseek.__all__) == set(cbquant.deepseek.__all__)
