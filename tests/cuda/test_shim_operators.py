"""The operators of DeepSeek-V4 on the device, compiled by g++ and run with threads on the CPU, and as nvcc compiles
them, in the interpreter, against float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cbquant.reference import deepseek as reference
from tests.attention_inputs import ATTENTION
from tests.cuda.operators import Operators
from tests.cuda.ptx_modules import ARCHITECTURES, load_kernels
from tests.cuda.shim import KERNEL_INCLUDES, Shim, build, why_not
from tests.deepseek_inputs import DTYPES, assert_close, draw, order
from tests.paths import ROOT
from tests.ptx.nvcc import find_nvcc

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


SOURCES = sorted((ROOT / "cuda" / "operators").glob("*.cu"))
#: Kernels run as fibers in two schedules, and as PTX of two architectures.
WAYS = ["0", "1", *ARCHITECTURES]


@pytest.fixture(scope="module", params=WAYS)
def library(request: pytest.FixtureRequest) -> Shim:
    shim = Shim(build(SOURCES, KERNEL_INCLUDES))
    if request.param not in ARCHITECTURES:
        shim.seed(int(request.param))
        return shim
    if find_nvcc() is None:
        pytest.skip("nvcc not found: the device code is not compiled")
    with_kernels = [s.stem for s in SOURCES if "__global__" in s.read_text()]
    shim.interpret([load_kernels(name, request.param, "operators") for name in with_kernels])
    return shim


@pytest.fixture
def ops(library: Shim) -> Iterator[Operators]:
    yield Operators(library)
    library.free()


def four(array: NDArray[Any]) -> NDArray[Any]:
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


@pytest.mark.parametrize("dtype", DTYPES)
def test_vector_add_and_swiglu(ops: Operators, dtype: str) -> None:
    a, b = draw(0, (2, 3, 5, 7), dtype), order(draw(1, (2, 3, 5, 7), dtype), (3, 1, 0, 2))
    y = ops.empty((2, 3, 5, 7), DTYPES[dtype])
    ops.run("vector_add", [a, b], [y])
    assert_close(y, a.astype(np.float64) + b.astype(np.float64))
    a[0, 0, 0, :3], b[0, 0, 0, :4] = [0, np.nan, 2], [-3, 3, np.nan, 5]
    for limit in (np.inf, 0.75, 4.0):
        ops.run("swiglu", [a, b], [y], [limit])
        gate, up = np.minimum(a.astype(np.float64), limit), np.clip(b.astype(np.float64), -limit, limit)
        assert_close(y, gate / (1 + np.exp(-gate)) * up)
        assert np.isnan(y[0, 0, 0].astype(np.float64)).tolist() == [False, True, True, False, False, False, False]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "width"), [(1, 1), (3, 70), (8, 512)])
def test_streams(ops: Operators, dtype: str, tokens: int, width: int) -> None:
    pre, post, comb = draw(0, (tokens, 4), dtype), draw(1, (tokens, 4), dtype), draw(2, (tokens, 4, 4), dtype)
    h = order(draw(3, (tokens, 4, width), dtype), (2, 1, 0))
    x = ops.empty((tokens, width), DTYPES[dtype])
    ops.run("mhc_collapse", [pre, h], [x])
    assert_close(x, reference.mhc_collapse(pre, h))
    out, y = draw(4, (tokens, width), dtype), ops.empty((tokens, 4, width), DTYPES[dtype])
    ops.run("mhc_expand", [out, post, comb, h], [y])
    assert_close(y, reference.mhc_expand(out, post, comb, h))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("iters", [1, 3, 20])
@pytest.mark.parametrize("end", ["rows", "columns"])
@pytest.mark.parametrize("layout", ["dst_src", "src_dst"])
def test_sinkhorn(ops: Operators, dtype: str, iters: int, end: str, layout: str) -> None:
    tokens = 9
    mix, scale, base = draw(0, (tokens, 24), dtype, 3), draw(1, (3,), dtype), draw(2, (24,), dtype)
    pre, post = ops.empty((tokens, 4), DTYPES[dtype]), ops.empty((tokens, 4), DTYPES[dtype])
    comb = ops.empty((tokens, 4, 4), DTYPES[dtype])
    given = comb if layout == "dst_src" else comb.transpose(0, 2, 1)
    words = [float(end == "columns"), float(layout == "src_dst")]
    ops.run("mhc_sinkhorn_split", [mix, scale, base], [pre, post, given], [iters, 1e-6, *words])
    expected = reference.mhc_sinkhorn_split(mix, scale, base, iters, 1e-6, end, layout)
    for actual, wanted in zip((pre, post, comb), expected, strict=True):
        assert_close(actual, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("pairs", ["split", "interleaved"])
def test_rope(ops: Operators, dtype: str, inverse: bool, pairs: str) -> None:
    x = draw(0, (2, 3, 5, 80), dtype)
    for positions in (np.array([0, 7, 1_000_000]), np.int32([5, 131_071, 2]), np.array([0.5, -3.25, 1e6])):
        y = ops.empty(x.shape, DTYPES[dtype])
        numbers = [64, 160_000.0, float(inverse), float(pairs == "interleaved")]
        ops.run("partial_rope", [x, positions, None], [y], numbers)
        assert_close(y, reference.partial_rope(x, positions, 64, 160_000.0, inverse, pairs))
        rates = 3.0 / (1 + np.arange(32)) ** 2 * np.where(np.arange(32) % 5, 1, -1)
        for frequencies in (rates, rates.astype(np.float32), np.repeat(rates, 2)[::2]):
            ops.run("partial_rope", [x, positions, frequencies], [y], [64, 10_000.0, *numbers[2:]])
            expected = reference.partial_rope(x, positions, 64, inverse=inverse, pairs=pairs, frequencies=frequencies)
            assert_close(y, expected)


def test_rope_there_and_back_in_place(ops: Operators) -> None:
    x, positions, y = draw(0, (1, 2, 3, 64)), np.array([1_000_000, 3]), ops.empty((1, 2, 3, 64))
    y[...] = x
    for inverse in (0, 1):
        ops.run("partial_rope", [y.copy(), positions, None], [y], [64, 10_000.0, inverse, 0])
    assert_close(y, x.astype(np.float64), 1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("experts", [5, 256, 384])
def test_router(ops: Operators, dtype: str, experts: int) -> None:
    logits, bias = draw(0, (4, experts), dtype, 4), draw(1, (experts,), dtype)
    logits[0, :3] = [1e4, -1e4, 0]
    unbiased, biased = (ops.empty((4, experts), DTYPES[dtype]) for _ in range(2))
    ops.run("router_sqrtsoftplus", [logits, bias], [unbiased, biased])
    for actual, expected in zip((unbiased, biased), reference.router_sqrtsoftplus(logits, bias), strict=True):
        assert_close(actual, expected)


@pytest.mark.parametrize("scoring", ["sqrtsoftplus", "sigmoid"])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("experts", "k"), [(5, 5), (288, 8)])
def test_route(ops: Operators, experts: int, k: int, normalize: bool, scoring: str) -> None:
    logits, bias = draw(0, (6, experts)), np.zeros(experts, np.float32)
    logits[1] = 1  # all alike: the lower ids
    logits[2, 1] = np.nan
    ids, weights = ops.empty((6, k), np.int32), ops.empty((6, k))
    ops.run("route", [logits, bias], [ids, weights], [2.5, float(normalize), float(scoring == "sigmoid")])
    wanted = reference.route(logits, bias, k, 2.5, normalize, scoring)
    assert np.array_equal(ids, wanted[0])
    assert_close(weights, wanted[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("on", ["value", "gate"])
@pytest.mark.parametrize("entries", [1, 8, 40])
@pytest.mark.parametrize("one_gate", [False, True])
def test_pool(ops: Operators, dtype: str, on: str, entries: int, one_gate: bool) -> None:
    windows, width = 3, 70
    gate = draw(0, (windows, entries, 1 if one_gate else width), dtype, 3)
    kv, ape = draw(1, (windows, entries, width), dtype), draw(2, (entries, width), dtype)
    gate[0, : entries // 2] = -np.inf
    kv[0, 0] = kv[0, 0] if entries < 2 else np.nan
    gate[2] = -np.inf
    y = ops.empty((windows, width), DTYPES[dtype])
    ops.run("compressor_pool", [np.broadcast_to(gate, kv.shape), kv, ape], [y], [float(on == "gate")])
    assert_close(y, reference.compressor_pool(gate, kv, ape, on))
    assert not y[2].astype(np.float64).any()


@pytest.mark.parametrize(
    ("batch", "n", "k"),
    [(1, 1, 1), (2, 64, 8), (1, 256, 32), (3, 1024, 512), (1, 1025, 1), (1, 5000, 512), (2, 3000, 700), (1, 900, 900)],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_topk(ops: Operators, batch: int, n: int, k: int, dtype: str) -> None:
    scores = np.round(draw(n, (batch, n)) * 8).astype(DTYPES[dtype])  # many ties
    scores[0, n // 3] = np.nan
    scores[-1, n // 2] = -np.inf
    scores[0, n // 4] = -0.0
    y = ops.empty((batch, k), np.int32)
    ops.run("indexer_topk", [scores, None], [y])
    assert np.array_equal(y, reference.indexer_topk(scores, k))


@pytest.mark.parametrize(
    ("n", "k"), [(0, 3), (0, 600), (1, 8), (70, 8), (70, 90), (5000, 512), (1500, 600), (900, 1025)]
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_topk_of_the_first(ops: Operators, n: int, k: int, dtype: Any) -> None:
    lengths = np.array([n, 0, n // 2, min(n, 3)], dtype)
    scores = np.round(draw(n, (4, n)) * 8)
    y = ops.empty((4, k), np.int32)
    expected = reference.indexer_topk(scores, k, lengths=lengths)
    for row, count in zip(scores, lengths, strict=True):
        row[count:] = np.inf
    ops.run("indexer_topk", [scores, lengths], [y])
    assert np.array_equal(y, expected)


@pytest.mark.parametrize(("k", "dtype"), [(1, np.int32), (40, np.int64), (1024, np.int32)])
def test_gather_lists_of_several_lengths(ops: Operators, k: int, dtype: Any) -> None:
    n, window = np.array([2000, 0, 7, 1500, 300], dtype), np.array([128, 3, 9, 0, 299], dtype)
    rng = np.random.default_rng(k)
    topk = np.array([rng.integers(-1, size, k) for size in n], dtype)
    for sizes, last in ((n, window), (n, 100), (2000, window), (2000, 100), (np.full(5, -1), 100)):
        numbers = [0 if isinstance(x, np.ndarray) else x for x in (sizes, last)]
        arrays = [x if isinstance(x, np.ndarray) else None for x in (sizes, last)]
        y = ops.empty((5, k + 300), np.int32)
        ops.run("gather_list", [topk, *arrays], [y], numbers)
        each = np.maximum(np.broadcast_to(sizes, 5), 0)
        expected = reference.gather_list(np.where(topk < each[:, None], topk, -1), each, last)
        assert np.array_equal(y[:, : expected.shape[1]], expected)
        assert (y[:, expected.shape[1] :] == -1).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("batch", "heads", "width", "n"), [(1, 64, 128, 70), (2, 3, 33, 5), (1, 65, 16, 64), (1, 1, 1, 1)]
)
@pytest.mark.parametrize("of_heads", [False, True])
def test_indexer_score(ops: Operators, dtype: str, batch: int, heads: int, width: int, n: int, of_heads: bool) -> None:
    q, w = draw(0, (batch, heads, width), dtype), draw(1, (batch, heads), dtype)
    k = draw(2, (n, heads if of_heads else 1, width), dtype)
    y = ops.empty((batch, n))
    ops.run("indexer_score", [q, k, w, None], [y])
    expected = reference.indexer_score(q, k if of_heads else k[:, 0], w)
    assert_close(y, expected, 1e-4)


@pytest.mark.parametrize("of_heads", [False, True])
def test_indexer_score_of_the_first(ops: Operators, of_heads: bool) -> None:
    q, w, k = draw(0, (4, 3, 33)), draw(1, (4, 3)), draw(2, (150, 3 if of_heads else 1, 33))
    y = ops.empty((4, 150))
    lengths = np.array([150, 0, 64, 67])
    ops.run("indexer_score", [q, k, w, lengths], [y])
    expected = reference.indexer_score(q, k if of_heads else k[:, 0], w)
    for actual, wanted, n in zip(y, expected, lengths, strict=True):
        assert_close(actual[:n], wanted[:n], 1e-4)
        assert np.isnan(actual[-(-n // 64) * 64 :]).all()  # what memory held before


@pytest.mark.parametrize(
    ("batch", "n", "k", "processors", "some"),
    [
        (1, 0, 3, 3, False),
        (2, 70, 70, 3, False),
        (1, 1500, 512, 1, False),
        (1, 3000, 512, 5, False),
        (3, 1100, 90, 2, True),
        (2, 600, 512, 3, True),
    ],
)
def test_indexer_select(ops: Operators, batch: int, n: int, k: int, processors: int, some: bool) -> None:
    """Exactly what a stable sort of the device's scores gives: with ties across pieces, NaN, and lengths."""
    q, w, keys = draw(0, (batch, 3, 33)), draw(1, (batch, 3)), draw(2, (n, 1, 33))
    keys[::5] = keys[:1]
    keys[n // 2 : n // 2 + 2] = np.nan
    lengths = np.array([n, n // 3, 0][:batch], np.int32) if some else None
    scores, y = ops.empty((batch, n)), ops.empty((batch, k), np.int32)
    if n:
        ops.run("indexer_score", [q, keys, w, None], [scores])
    ops.run("indexer_select", [q, keys, w, lengths], [y], processors=processors)
    counts = np.full(batch, n) if lengths is None else lengths
    assert np.array_equal(y, reference.indexer_topk(scores, k, lengths=counts))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "n", "width", "value_width"),
    [
        (1, 2, 1, 1, 64, 64),
        (2, 9, 1, 300, 64, 64),
        (1, 6, 3, 150, 192, 128),
        (1, 16, 1, 70, 512, 512),
        (1, 8, 8, 40, 576, 512),
    ],
)
def test_attention(
    ops: Operators, dtype: str, batch: int, heads: int, kv_heads: int, n: int, width: int, value_width: int
) -> None:
    q = draw(0, (batch, heads, width), dtype)
    k, v = draw(1, (batch, kv_heads, n, width), dtype), draw(2, (batch, kv_heads, n, value_width), dtype)
    sink = draw(3, (heads,), dtype, 3)
    lengths = np.array([n, n // 2][:batch], np.int64)
    y = ops.empty((batch, heads, value_width), DTYPES[dtype])
    scale = 1 / np.sqrt(width)
    ops.run("attention", [q, k, v, None, None, sink, lengths, None], [y], [scale], processors=5)
    assert_close(y, reference.sdpa_decode_sink(q, k, v, sink, scale, lengths), ATTENTION[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "n", "width", "rope", "value_width"),
    [(64, 1, 70, 64, 0, 64), (40, 2, 33, 128, 0, 128), (70, 1, 50, 192, 64, 192), (16, 1, 5, 512, 64, 512)],
)
@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("memory", [99, 163])
def test_many_heads_of_one_cache(
    ops: Operators,
    dtype: str,
    heads: int,
    kv_heads: int,
    n: int,
    width: int,
    rope: int,
    value_width: int,
    is_shared: bool,
    memory: int,
) -> None:
    """Tensor cores, where the types are halves and a tile has room in shared memory."""
    batch, scale = 2, 1 / np.sqrt(width + rope)
    q, sink = draw(0, (batch, heads, width), dtype), draw(3, (heads,), dtype, 3)
    k, v = draw(1, (batch, kv_heads, n, width), dtype), draw(2, (batch, kv_heads, n, value_width), dtype)
    q2, k2 = draw(4, (batch, heads, rope), dtype), draw(5, (batch, kv_heads, n, rope), dtype)
    lengths = np.array([n, n // 2])
    ops.shim.launched()
    y = ops.empty((batch, heads, value_width), DTYPES[dtype])
    more = [q2, k2] if rope else [None, None]
    ops.run("attention", [q, k, k if is_shared else v, *more, sink, lengths, None], [y], [scale], 5, memory)
    expected = reference.sdpa_decode_sink(
        np.concatenate([q, q2], -1), np.concatenate([k, k2], -1), k if is_shared else v, sink, scale, lengths
    )
    assert_close(y, expected, ATTENTION[dtype])
    has_room = is_shared or memory > 99 or width < 512
    assert ("many" in ops.shim.launched()[0]) == (dtype != "float32" and has_room)


def test_float32_queries_keep_their_digits(ops: Operators) -> None:
    q, k = draw(0, (1, 16, 64), scale=3), draw(1, (1, 1, 50, 64), "float16", 3)
    y = ops.empty((1, 16, 64))
    ops.run("attention", [q, k, k, None, None, None, None, None], [y], [0.3])
    assert_close(y, reference.sdpa_decode_sink(q, k, k, None, 0.3), 1e-4)


def test_lengths_that_are_none_of_the_cache(ops: Operators) -> None:
    q, k = draw(0, (3, 2, 64)), draw(1, (3, 1, 40, 64))
    y = ops.empty((3, 2, 64))
    ops.run("attention", [q, k, k, None, None, None, np.array([41, 2**40, -1]), None], [y], [0.1])
    assert_close(y, reference.sdpa_decode_sink(q, k, k, None, 0.1, [40, 40, 0]), 1e-4)


def test_attention_over_a_list(ops: Operators) -> None:
    q, k = draw(0, (2, 5, 64)), draw(1, (2, 1, 90, 64))
    rows = np.array([[3, 89, -1, 0, 40, 41, -1], [-1, -1, -1, -1, -1, -1, -1]], np.int32)
    for sink in (None, draw(2, (5,))):
        y = ops.empty((2, 5, 64))
        ops.run("attention", [q, k, k, None, None, sink, None, rows], [y], [0.125])
        assert_close(y, reference.sparse_sdpa_decode(q, k, k, rows, sink, 0.125), 1e-4)
        assert not y[1].any()


def test_attention_with_extreme_logits(ops: Operators) -> None:
    q, k, v = draw(0, (1, 3, 64)), draw(1, (1, 1, 200, 64)), draw(2, (1, 1, 200, 64))
    k[0, 0, ::7] = -1e30 * np.sign(q[0, 0])  # logits of the first head that weigh nothing
    q[0, 1] = 0
    sinks = np.float32([1e4, -1e4, 0])
    y = ops.empty((1, 3, 64))
    ops.run("attention", [q, k, v, None, None, sinks, None, None], [y], [1.0])
    assert_close(y, reference.sdpa_decode_sink(q, k, v, sinks, 1.0), 1e-4)


def test_a_row_of_weight_0_adds_nothing(ops: Operators) -> None:
    q, k, v = np.ones((1, 2, 64), np.float32), draw(1, (1, 1, 70, 64)), draw(2, (1, 1, 70, 64))
    k[0, 0, 3, 0] = -np.inf
    v[0, 0, 3] = np.inf
    y = ops.empty((1, 2, 64))
    ops.run("attention", [q, k, v, None, None, None, None, None], [y], [1.0])
    assert_close(y, reference.sdpa_decode_sink(q, k, v, None, 1.0), 1e-4)


def test_attention_over_nothing(ops: Operators) -> None:
    q, k = draw(0, (1, 3, 64)), draw(1, (1, 1, 20, 64))
    y = ops.empty((1, 3, 64))
    ops.run("attention", [q, k, k, None, None, None, np.int32([0]), None], [y], [1.0])
    assert not y.any()


def test_mla(ops: Operators) -> None:
    heads, d, r, rope, n = 5, 32, 96, 16, 130
    q_nope, q_rope, w_uk = draw(0, (heads, d)), draw(1, (heads, rope)), draw(2, (heads, d, r), scale=0.2)
    ckv, k_rope = draw(3, (n, r)), draw(4, (n, rope))
    absorbed, y = ops.empty((heads, r)), ops.empty((1, heads, r))
    ops.run("mla_absorb", [q_nope, w_uk], [absorbed])
    cache, scale = ckv[None, None], 1 / np.sqrt(d + rope)
    ops.run(
        "attention", [absorbed[None], cache, cache, q_rope[None], k_rope[None, None], None, None, None], [y], [scale]
    )
    assert_close(y[0], reference.mla_decode(q_nope, q_rope, w_uk, ckv, k_rope), 1e-4)
