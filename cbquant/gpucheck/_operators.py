"""cbquant.cuda.deepseek against the operators in float64, with arrays on the device in each float type. Outputs are
filled with other bytes first, and the same call must give the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cbquant
from cbquant import cuda
from cbquant.cuda import _driver, deepseek
from cbquant.gpucheck import _data
from cbquant.gpucheck._correctness import HOLDS, LIMITS, POISON, as_float64, poisoned
from cbquant.gpucheck._items import Context, Item, Wrong, need_gpu
from cbquant.reference import deepseek as reference

#: |found - expected| <= tolerance * (1 + |expected|), by the type of the result.
ELEMENTWISE = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 5e-2}
ATTENTION = {"float32": 1e-3, "float16": 3e-3, "bfloat16": 1.5e-2}
#: float32 scores, whatever their inputs are; how near a chosen expert's score is to that of the one that sorting finds.
SCORE, CHOICE = 1e-4, 1e-5

Array = NDArray[Any]
Case = tuple[tuple[Any, ...], dict[str, Any]]


def items(context: Context) -> Iterator[Item]:
    need_gpu(context)
    for name in cases(small=True):
        yield Item(name, partial(check, context, name))
    others: dict[str, Callable[[Context], dict[str, Any]]] = {
        "route": check_route,
        "indexer_select": check_select,
        "gather_list": check_list,
        "moe_ffn": check_moe,
    }
    for name, work in others.items():
        yield Item(name, partial(work, context))


def cases(small: bool) -> dict[str, Case]:
    """Arguments of operators whose results are compared element by element: odd sizes, of one CTA and of several."""
    t, d, n, heads = (3, 40, 70, 6) if small else (33, 1030, 5003, 64)
    kv = draw(1, (2, 3, n, 72)), draw(2, (2, 3, n, 64))
    lengths = np.array([n, n // 3], np.int32)
    chosen = np.random.default_rng(0).integers(-1, n, (2, n // 2)).astype(np.int32)
    return {
        "vector_add": ((draw(0, (t, d)), draw(1, (t, d))), {}),
        "mhc_sinkhorn_split": ((draw(0, (t, 24)), draw(1, (3,)), draw(2, (24,))), {}),
        "mhc_collapse": ((draw(0, (t, 4)), draw(1, (t, 4, d))), {}),
        "mhc_expand": ((draw(0, (t, d)), draw(1, (t, 4)), draw(2, (t, 4, 4)), draw(3, (t, 4, d))), {}),
        "partial_rope": ((draw(0, (t, 5, 72)), np.arange(t, dtype=np.int32) * 997), {"pairs": "interleaved"}),
        "compressor_pool": ((draw(0, (t, 8, 1)), draw(1, (t, 8, d)), draw(2, (8, d))), {"ape_on": "gate"}),
        "router_sqrtsoftplus": ((draw(3, (t, 256), 3), draw(4, (256,))), {}),
        "indexer_score": ((draw(0, (2, heads, 128)), draw(1, (n, 128), 0.1), draw(2, (2, heads))), {}),
        "indexer_topk": ((np.round(draw(0, (2, 3 * n)) * 4), n // 2), {"lengths": lengths}),
        "sdpa_decode_sink": ((draw(0, (2, 6, 72)), *kv, draw(5, (6,))), {"lengths": lengths}),
        "sparse_sdpa_decode": ((draw(0, (2, 6, 72)), *kv, chosen), {"sink": draw(5, (6,))}),
        "mla_decode": (
            (draw(0, (4, 16)), draw(1, (4, 8)), draw(2, (4, 16, 96), 0.2), draw(3, (n, 96)), draw(4, (n, 8))),
            {},
        ),
    }


def draw(seed: int, shape: tuple[int, ...], scale: float = 1.0) -> NDArray[np.float32]:
    return (np.random.default_rng([seed, len(shape)]).standard_normal(shape) * scale).astype(np.float32)


# ---- arrays of the device ----


def put(context: Context, value: Any, dtype: str) -> tuple[Any, Any]:
    """An array on the device, floats in `dtype`, and what it holds, in float64; what is no array stays as it is."""
    if not isinstance(value, np.ndarray):
        return value, value
    if value.dtype == np.float32:
        held = _data.to_bf16(value) if dtype == "bfloat16" else value.astype(dtype)
        exact = as_float64(held, dtype)
    else:
        held, exact, dtype = value, value, value.dtype.name
    array = cuda.DeviceArray.empty(value.shape, dtype, context.device, 0)
    native = _driver.ready("gpucheck", context.device)
    native.upload(array._memory, 0, np.ascontiguousarray(held).reshape(-1).view(np.uint8), 0)
    return array, exact


def to_host(array: cuda.DeviceArray) -> Array:
    """Its values; of bfloat16 the bits."""
    return array.to_numpy(np.empty(array.shape, HOLDS.get(array.dtype, np.int32)))


def twice(context: Context, name: str, given: Case, outs: list[tuple[tuple[int, ...], str]]) -> list[Array]:
    """The operator's results in poisoned arrays, which are the same in two calls."""
    found: list[list[Array]] = []
    for _ in range(2):
        places = [poisoned(shape, dtype, context.device, POISON["product"]) for shape, dtype in outs]
        getattr(deepseek, name)(*given[0], **given[1], out=places[0] if len(places) == 1 else tuple(places))
        found.append([to_host(p) for p in places])
    if [a.tobytes() for a in found[0]] != [a.tobytes() for a in found[1]]:
        raise Wrong("the same call gave other bits")
    return found[0]


# ---- what is compared element by element ----


def check(context: Context, name: str) -> dict[str, Any]:
    """The largest part of the tolerance that an element takes, by type."""
    worst: dict[str, float] = {}
    for small in (True,) if context.small else (True, False):
        args, options = cases(small)[name]
        for dtype in ELEMENTWISE:
            pairs = [put(context, a, dtype) for a in args]
            words = {key: put(context, value, dtype) for key, value in options.items()}
            result = getattr(reference, name)(*(p[1] for p in pairs), **{key: p[1] for key, p in words.items()})
            expected = [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]
            kinds = [result_type(name, r, dtype) for r in expected]
            given = tuple(p[0] for p in pairs), {key: p[0] for key, p in words.items()}
            found = twice(context, name, given, [(r.shape, kind) for r, kind in zip(expected, kinds, strict=True)])
            for a, b, kind in zip(found, expected, kinds, strict=True):
                part = compare(a, b, kind, tolerance(name, kind), f"{dtype}, shape {b.shape}")
                worst[dtype] = max(worst.get(dtype, 0.0), part)
    return worst


def result_type(name: str, expected: Array, dtype: str) -> str:
    if expected.dtype.kind == "i":
        return "int32"
    return "float32" if name == "indexer_score" else dtype


def tolerance(name: str, dtype: str) -> float:
    if name == "indexer_score":
        return SCORE
    return (ATTENTION if "decode" in name else ELEMENTWISE).get(dtype, 0.0)


def compare(found: Array, expected: Array, dtype: str, limit: float, what: str) -> float:
    """Indices are equal; numbers are near, and what is no finite number is the same."""
    if dtype == "int32":
        wrong = found != expected
        if wrong.any():
            at = tuple(map(int, np.unravel_index(int(np.argmax(wrong)), wrong.shape)))
            raise Wrong(f"{what}: {int(found[at])} at {at}, expected {int(expected[at])}")
        return 0.0
    values = as_float64(found, dtype)
    with np.errstate(invalid="ignore"):
        same = (values == expected) | (np.isnan(values) & np.isnan(expected))
        parts = np.where(same, 0.0, np.abs(values - expected) / (limit * (1 + np.abs(expected))))
    parts[np.isnan(parts)] = np.inf
    if parts.size and parts.max() > 1:
        at = tuple(map(int, np.unravel_index(int(np.argmax(parts)), parts.shape)))
        text = f"{float(values[at])!r} at {at}, expected {float(expected[at])!r}"
        raise Wrong(f"{what}: {text}, {parts[at]:.1f} times the tolerance of {limit:g}")
    return float(parts.max(initial=0.0))


# ---- what is not ----


def check_route(context: Context) -> dict[str, Any]:
    """Experts whose scores are the largest, as far as float32 tells them apart, and their weights."""
    t, experts, k = (5, 64, 6) if context.small else (257, 256, 8)
    worst: dict[str, float] = {}
    for dtype in ELEMENTWISE:
        for normalize in (False, True):
            (logits, x), (bias, b) = (
                put(context, draw(s, shape, 3), dtype) for s, shape in ((0, (t, experts)), (1, (experts,)))
            )
            given = (logits, bias, k), {"scale": 2.5, "normalize": normalize}
            ids, weights = twice(context, "route", given, [((t, k), "int32"), ((t, k), dtype)])
            if ids.min() < 0 or ids.max() >= experts or any(len(set(row)) < k for row in ids.tolist()):
                raise Wrong(f"{dtype}: ids are no {k} different experts of {experts}")
            unbiased, biased = reference.router_sqrtsoftplus(x, b)
            best = -np.sort(-biased, axis=-1)[:, :k]
            compare(np.take_along_axis(biased, ids, -1).astype(np.float32), best, "float32", CHOICE, f"{dtype}: scores")
            chosen = np.take_along_axis(unbiased, ids, -1)
            wanted = 2.5 * (chosen / chosen.sum(-1, keepdims=True) if normalize else chosen)
            part = compare(weights, wanted, dtype, ELEMENTWISE[dtype], f"{dtype}: weights")
            worst[dtype] = max(worst.get(dtype, 0.0), part)
    return worst


def check_select(context: Context) -> dict[str, Any]:
    """The positions that sorting the device's own scores gives: ties, NaN and lengths among them."""
    n, counts = (1500, (7, 600)) if context.small else (70_001, (1, 512, 2048))
    keys = draw(1, (n, 128))
    keys[::7] = keys[0]  # equal scores
    keys[5] = np.nan
    lengths = np.array([n, n // 2 + 1], np.int32)
    for dtype in ELEMENTWISE:
        q, k, w = (put(context, a, dtype)[0] for a in (draw(0, (2, 5, 128)), keys, draw(2, (2, 5))))
        scores = to_host(deepseek.indexer_score(q, k, w))
        for count in counts:
            for limits in (None, lengths):
                options = {} if limits is None else {"lengths": put(context, limits, dtype)[0]}
                found = twice(context, "indexer_select", ((q, k, w, count), options), [((2, count), "int32")])
                expected = reference.indexer_topk(scores, count, lengths=limits)
                compare(found[0], expected, "int32", 0, f"{dtype}, {count} of {n}")
    return {"positions": n}


def check_list(context: Context) -> dict[str, Any]:
    """Each position once, rising, and -1 where a list ends."""
    for n, k, window in ((1, 1, 128), (50, 20, 3), (3000, 1024, 128), (3000, 0, 0)):
        topk = np.random.default_rng(n).integers(-1, n, (3, k)).astype(np.int32)
        shape = 3, min(n, k + window)
        found = twice(context, "gather_list", ((put(context, topk, "float32")[0], n, window), {}), [(shape, "int32")])
        expected = np.full(shape, -1)
        for row, chosen in zip(expected, topk, strict=True):
            wanted = reference.gather_list(chosen, n, window)
            row[: len(wanted)] = wanted
        compare(found[0], expected, "int32", 0, f"{k} of {n}, and the last {window}")
    return {}


def check_moe(context: Context) -> dict[str, Any]:
    """Relative L2 of the layer, as of its products."""
    experts, f, k, n, tokens, picks = (3, 64, 32, 10, 5, 2) if context.small else (9, 320, 256, 130, 40, 3)
    fmt = cbquant._formats.get("q8_0")
    tensors = [
        cbquant.QuantTensor(_data.finite_rows(fmt, experts * s[0], s[1], i).reshape(-1), "q8_0", (experts, *s))
        for i, s in enumerate(((f, k), (f, k), (n, f)))
    ]
    loaded = [cuda.load(t, context.device) for t in tensors]
    gate, up, down = (_data.from_bf16(_data.to_bf16(t.dequant())) for t in tensors)
    ids = np.random.default_rng(0).integers(-1, experts, (tokens, picks)).astype(np.int32)
    x, exact = put(context, draw(1, (tokens, k)) / 64, "float32")
    factors, by = put(context, np.abs(draw(2, (tokens, picks))), "float32")
    worst: dict[str, Any] = {}
    for precision, limit in LIMITS.items():
        for clip in (None, 0.5):
            given = (x, *loaded, put(context, ids, "")[0], factors), {"precision": precision, "limit": clip}
            y = twice(context, "moe_ffn", given, [((tokens, n), "float32")])[0]
            expected = reference.moe_ffn(exact, gate, up, down, ids, by, limit=clip)
            relative = float(np.linalg.norm(y - expected) / np.linalg.norm(expected))
            worst[precision] = max(worst.get(precision, 0.0), relative)
            if not relative <= limit:
                raise Wrong(f"{precision}, limit {clip}: relative L2 {relative:.2e}, at most {limit:.0e}")
    return worst
