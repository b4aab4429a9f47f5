"""Operators that work element by element, and what a careful user of NumPy or torch would write for them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.deepseek.cases import Array, Case, Maker, draw, room, total
from benchmarks.deepseek.plan import Plan
from benchmarks.timing import Call
from cbquant import deepseek


def _plain(dtype: str, call: Call) -> Call | None:
    """NumPy is compared in float32 only: its float16 and bfloat16 are many times slower."""
    return call if dtype == "float32" else None


def _tensors(torch: Any, *arrays: Array) -> list[Any]:
    """torch's view of arrays; bfloat16 through its bits."""
    views = (array.view(np.uint16).view(np.int16) if array.dtype.name == "bfloat16" else array for array in arrays)
    tensors = [torch.from_numpy(view) for view in views]
    return [
        tensor.view(torch.bfloat16) if array.dtype.name == "bfloat16" else tensor
        for tensor, array in zip(tensors, arrays, strict=True)
    ]


def vector_add(plan: Plan, tokens: int, dtype: str) -> Case:
    a, b, out = (
        draw((tokens, plan.columns), dtype),
        draw((tokens, plan.columns), dtype, 1),
        room((tokens, plan.columns), dtype),
    )
    mine = np.empty_like(out)

    def in_torch(torch: Any) -> Call:
        return partial(torch.add, *_tensors(torch, a, b))

    def own(threads: int) -> Call:
        return partial(deepseek.vector_add, a, b, out=out, threads=threads)

    return Case(
        "vector_add", own, (out,), total(a, b), out.nbytes, _plain(dtype, partial(np.add, a, b, mine)), in_torch
    )


def mhc_collapse(plan: Plan, tokens: int, dtype: str) -> Case:
    pre, h = draw((tokens, 4), "float32"), draw((tokens, 4, plan.columns), dtype)
    out = room((tokens, plan.columns), dtype)

    def in_numpy() -> Any:
        return np.matmul(pre[:, None, :], h)[:, 0]

    def in_torch(torch: Any) -> Call:
        weights, streams = _tensors(torch, pre, h)
        return lambda: (weights.to(streams.dtype)[:, None, :] @ streams)[:, 0]

    def own(threads: int) -> Call:
        return partial(deepseek.mhc_collapse, pre, h, out=out, threads=threads)

    return Case("mhc_collapse", own, (out,), total(pre, h), out.nbytes, _plain(dtype, in_numpy), in_torch)


def mhc_expand(plan: Plan, tokens: int, dtype: str) -> Case:
    block, post, comb = (
        draw((tokens, plan.columns), dtype),
        draw((tokens, 4), "float32"),
        draw((tokens, 4, 4), "float32"),
    )
    residual, out = draw((tokens, 4, plan.columns), dtype, 1), room((tokens, 4, plan.columns), dtype)

    def in_numpy() -> Any:
        result = np.matmul(comb, residual)
        result += post[:, :, None] * block[:, None, :]
        return result

    def in_torch(torch: Any) -> Call:
        x, weights, matrix, streams = _tensors(torch, block, post, comb, residual)
        weights, matrix = weights.to(streams.dtype), matrix.to(streams.dtype)
        return lambda: torch.baddbmm(weights[:, :, None] * x[:, None, :], matrix, streams)

    def own(threads: int) -> Call:
        return partial(deepseek.mhc_expand, block, post, comb, residual, out=out, threads=threads)

    read = total(block, post, comb, residual)
    return Case("mhc_expand", own, (out,), read, out.nbytes, _plain(dtype, in_numpy), in_torch)


def partial_rope(plan: Plan, tokens: int, dtype: str) -> Case:
    heads, half = max(plan.columns // plan.head, 1), 32
    x, out = draw((tokens, heads, plan.head), dtype), room((tokens, heads, plan.head), dtype)
    positions = np.arange(tokens)

    def angles() -> Array:
        return positions[:, None, None] * 10_000.0 ** (-np.arange(half) / half)

    def in_numpy() -> Any:
        turns = angles()
        cosine, sine = np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)
        result = x.copy()
        a, b = x[..., -2 * half : -half], x[..., -half:]
        result[..., -2 * half : -half] = a * cosine - b * sine
        result[..., -half:] = b * cosine + a * sine
        return result

    def in_torch(torch: Any) -> Call:
        (values,) = _tensors(torch, x)
        places, steps = torch.from_numpy(positions), torch.arange(half, dtype=torch.float64)

        def turn() -> Any:
            turns = places[:, None, None] * 10_000.0 ** (-steps / half)
            cosine, sine = turns.cos().to(values.dtype), turns.sin().to(values.dtype)
            a, b = values[..., -2 * half : -half], values[..., -half:]
            return torch.cat([values[..., : -2 * half], a * cosine - b * sine, b * cosine + a * sine], dim=-1)

        return turn

    def own(threads: int) -> Call:
        return partial(deepseek.partial_rope, x, positions, out=out, threads=threads)

    return Case("partial_rope", own, (out,), x.nbytes, out.nbytes, _plain(dtype, in_numpy), in_torch)


def compressor_pool(plan: Plan, tokens: int, dtype: str, entries: int = 8, step: int = 4) -> Case:
    """Windows of 8 entries every 4, or of 128 without overlap."""
    count = max(tokens // step, 1)
    cache = [draw(((count - 1) * step + entries, plan.head), dtype, seed) for seed in range(2)]
    gate, kv = (
        np.lib.stride_tricks.as_strided(
            x, (count, entries, plan.head), (step * x.strides[0], *x.strides), writeable=False
        )
        for x in cache
    )
    ape, out = draw((entries, plan.head), dtype, 2), room((count, plan.head), dtype)

    def in_numpy() -> Any:
        weights = np.exp(gate - gate.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        weights *= kv + ape
        return weights.sum(axis=1)

    def in_torch(torch: Any) -> Call:
        gates, values, places = (
            torch.as_strided(tensor, (count, entries, plan.head), (step * plan.head, plan.head, 1)) if i < 2 else tensor
            for i, tensor in enumerate(_tensors(torch, *cache, ape))
        )
        return lambda: (gates.softmax(dim=1) * (values + places)).sum(dim=1)

    def own(threads: int) -> Call:
        return partial(deepseek.compressor_pool, gate, kv, ape, out=out, threads=threads)

    name = f"compressor_pool, P = {entries}"
    return Case(name, own, (out,), total(*cache, ape), out.nbytes, _plain(dtype, in_numpy), in_torch)


def compressor_pool_128(plan: Plan, tokens: int, dtype: str) -> Case:
    return compressor_pool(plan, tokens, dtype, 128, 128)


def mhc_sinkhorn_split(plan: Plan, tokens: int, dtype: str) -> Case:
    mix, scale, base = draw((tokens, 24), dtype), np.ones(3, np.float32), np.zeros(24, np.float32)
    outs = tuple(room(shape, dtype) for shape in ((tokens, 4), (tokens, 4), (tokens, 4, 4)))
    eps = np.float32(1e-6)

    def in_numpy() -> Any:
        """Tokens last, which is how NumPy's vectors are long."""
        logits = np.ascontiguousarray((mix * np.repeat(scale, [4, 4, 16]) + base).T)
        gates = 1 / (1 + np.exp(-logits[:8]))
        comb = logits[8:].reshape(4, 4, -1)
        comb = np.exp(comb - comb.max(axis=1, keepdims=True))
        comb /= comb.sum(axis=1, keepdims=True)
        comb += eps
        for _ in range(20):
            comb /= comb.sum(axis=0, keepdims=True) + eps
            comb /= comb.sum(axis=1, keepdims=True) + eps
        return gates[:4].T + eps, 2 * gates[4:].T, comb.transpose(2, 0, 1)

    def in_torch(torch: Any) -> Call:
        numbers, factors, offsets = _tensors(torch, mix, scale, base)

        def split() -> Any:
            logits = numbers * factors.repeat_interleave(torch.tensor([4, 4, 16])) + offsets
            comb = logits[:, 8:].reshape(-1, 4, 4).softmax(dim=2) + 1e-6
            for _ in range(20):
                comb = comb / (comb.sum(dim=1, keepdim=True) + 1e-6)
                comb = comb / (comb.sum(dim=2, keepdim=True) + 1e-6)
            return logits[:, :4].sigmoid() + 1e-6, 2 * logits[:, 4:8].sigmoid(), comb

        return split

    def own(threads: int) -> Call:
        return partial(deepseek.mhc_sinkhorn_split, mix, scale, base, out=outs, threads=threads)

    return Case("mhc_sinkhorn_split", own, outs, mix.nbytes, total(*outs), _plain(dtype, in_numpy), in_torch)


def router_sqrtsoftplus(plan: Plan, tokens: int, dtype: str) -> Case:
    logits, bias = draw((tokens, plan.experts), dtype), draw((plan.experts,), "float32")
    outs = room(logits.shape, dtype), room(logits.shape, dtype)

    def in_numpy() -> Any:
        scores = np.exp(-np.abs(logits))
        np.log1p(scores, out=scores)
        scores += np.maximum(logits, 0)
        np.sqrt(scores, out=scores)
        return scores, scores + bias

    def in_torch(torch: Any) -> Call:
        values, offsets = _tensors(torch, logits, bias)

        def score() -> Any:
            unbiased = torch.nn.functional.softplus(values).sqrt()
            return unbiased, unbiased + offsets

        return score

    def own(threads: int) -> Call:
        return partial(deepseek.router_sqrtsoftplus, logits, bias, out=outs, threads=threads)

    read = total(logits, bias)
    return Case("router_sqrtsoftplus", own, outs, read, total(*outs), _plain(dtype, in_numpy), in_torch)


def route(plan: Plan, tokens: int, dtype: str, k: int = 8) -> Case:
    logits, bias = draw((tokens, plan.experts), dtype), draw((plan.experts,), "float32")
    k = min(k, plan.experts)
    outs = room((tokens, k), "int32"), room((tokens, k), dtype)

    def in_numpy() -> Any:
        scores = np.sqrt(np.maximum(logits, 0) + np.log1p(np.exp(-np.abs(logits))))
        biased = scores + bias
        found = np.argpartition(-biased, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(biased, found, axis=1), axis=1)
        ids = np.take_along_axis(found, order, axis=1)
        weights = np.take_along_axis(scores, ids, axis=1)
        return ids, weights / weights.sum(axis=1, keepdims=True)

    def in_torch(torch: Any) -> Call:
        values, offsets = _tensors(torch, logits, bias)

        def choose() -> Any:
            scores = torch.nn.functional.softplus(values).sqrt()
            ids = (scores + offsets).topk(k, dim=1).indices
            weights = scores.gather(1, ids)
            return ids, weights / weights.sum(dim=1, keepdim=True)

        return choose

    def own(threads: int) -> Call:
        return partial(deepseek.route, logits, bias, k, normalize=True, out=outs, threads=threads)

    return Case("route", own, outs, total(logits, bias), total(*outs), _plain(dtype, in_numpy), in_torch)


#: Those whose time is that of memory, and the others.
BY_MEMORY: tuple[Maker, ...] = (vector_add, mhc_collapse, mhc_expand, partial_rope)
BY_ARITHMETIC: tuple[Maker, ...] = (
    compressor_pool,
    compressor_pool_128,
    mhc_sinkhorn_split,
    router_sqrtsoftplus,
    route,
)


def chosen(makers: Iterable[Maker], operators: tuple[str, ...]) -> list[Maker]:
    """Those of the operators that a plan names; all where it names none.

    >>> [maker.__name__ for maker in chosen(BY_MEMORY, ("mhc_expand",))]
    ['mhc_expand']
    """
    return [maker for maker in makers if not operators or maker.__name__.removesuffix("_128") in operators]
