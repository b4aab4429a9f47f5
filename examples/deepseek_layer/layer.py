"""The layer: its cache, and attention and experts made of cbquant's operators.

Shapes in comments: T tokens, D the width of the model, H heads of d elements.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from weights import Sizes, Weights

import cbquant
from cbquant import deepseek

Floats = NDArray[np.floating[Any]]

EPSILON, THETA, ROUTED_SCALE, SWIGLU_LIMIT = 1e-6, 160_000.0, 1.5, 10.0


class Pool:
    """A compressor's windows, which fill as tokens come, and how many of them have become entries.

    Where windows overlap, a token has two halves of columns: the first is for the window after its own, whose first
    rows it takes, and the second for its own. Put down so, windows [n, rows, columns] do not overlap in memory, and
    `compressor_pool` takes them as they are. A gate of -inf leaves out what the first window lacks.
    """

    def __init__(self, windows: int, ratio: int, columns: int, overlap: bool) -> None:
        shape = (windows + 2, 2 * ratio if overlap else ratio, columns)
        self.kv, self.gate = np.zeros(shape, np.float32), np.full(shape, -np.inf, np.float32)
        self.ratio, self.overlap, self.done = ratio, overlap, 0

    def put(self, positions: NDArray[np.int64], kv: Floats, gate: Floats) -> slice:
        """Take the tokens' kv and gates [T, columns, or twice as many]; the windows that are full now."""
        window, row = np.divmod(positions, self.ratio)
        columns = self.kv.shape[2]
        for place, values in ((self.kv, kv), (self.gate, gate)):
            place[window, row + self.ratio * self.overlap] = values[:, -columns:]
            if self.overlap:
                place[window + 1, row] = values[:, :columns]
        full = slice(self.done, (int(positions[-1]) + 1) // self.ratio)
        self.done = full.stop
        return full


class Cache:
    """What a layer keeps of the tokens so far.

    Compressed entries and tokens are keys and values of one softmax, so they are rows of one array: entry i is row i,
    and the token at position p is row `entries` + p. A real program would keep the last 128 tokens only.
    """

    def __init__(self, s: Sizes, attention: str, tokens: int) -> None:
        self.overlap = attention == "csa"
        self.ratio = s.csa_ratio if self.overlap else s.hca_ratio
        self.entries = tokens // self.ratio
        self.rows = np.zeros((1, self.entries + tokens, s.head_dim), np.float32)
        self.pool = Pool(self.entries, self.ratio, s.head_dim, self.overlap)
        if self.overlap:
            self.index_pool = Pool(self.entries, self.ratio, s.index_dim, self.overlap)
            self.index_keys = np.zeros((self.entries, s.index_dim), np.float32)
        self.length = 0


def rms_norm(x: Floats, weight: Any = 1) -> Floats:
    """Each row of x [.., columns] divided by its root mean square, times a weight for each column."""
    normed: Floats = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(EPSILON)) * weight
    return normed


class Operators:
    """The operators that a layer is made of, as attributes; they count the seconds that they take."""

    def __init__(self, threads: int | None) -> None:
        self.threads, self.seconds = threads, defaultdict[str, float](float)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(deepseek if name in deepseek.__all__ else cbquant, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            return self.time(name, lambda: function(*arguments, threads=self.threads, **options))

        return timed

    def rms_norm(self, x: Floats, weight: Any = 1) -> Floats:
        normed: Floats = self.time("rms_norm (NumPy)", lambda: rms_norm(x, weight))
        return normed

    def time(self, name: str, call: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        result = call()
        self.seconds[name] += time.perf_counter() - begin
        return result


class Layer:
    """A layer of DeepSeek-V4: attention and experts, each between a collapse and an expansion of four streams."""

    def __init__(self, s: Sizes, weights: Weights, threads: int | None = None) -> None:
        self.s, self.w, self.run = s, weights, Operators(threads)

    def forward(self, streams: Floats, cache: Cache) -> Floats:
        """The next streams [T, 4, D] of tokens that come after those in the cache, which grows by them."""
        positions = np.arange(cache.length, cache.length + len(streams))
        streams = self.site("attention", streams, lambda x: self.attention(x, positions, cache))
        streams = self.site("ffn", streams, self.experts)
        cache.length += len(streams)
        return streams

    def site(self, name: str, streams: Floats, block: Callable[[Floats], Floats]) -> Floats:
        """Weights of the streams by their own contents; with them one input [T, D] of a block, and its output back."""
        flat = self.run.rms_norm(streams.reshape(len(streams), -1))
        mix = self.product(f"{name}_mix", flat)
        # The model ends with columns, and reads as (src, dst) what it normalized as (dst, src).
        split = self.run.mhc_sinkhorn_split(mix, self.w[f"{name}_scale"], self.w[f"{name}_base"], end="columns")
        pre, post, comb = split
        x = self.run.rms_norm(self.run.mhc_collapse(pre, streams), self.w[f"{name}_norm"])
        expanded: Floats = self.run.mhc_expand(block(x), post, comb, streams, comb_layout="src_dst")
        return expanded

    def product(self, name: str, x: Floats) -> Floats:
        product: Floats = self.run.matmul(x, self.w[name])
        return product

    def rope(self, x: Floats, positions: NDArray[np.int64], inverse: bool = False) -> Floats:
        """Turn the last elements of x [T, H, d] or [T, d], in place."""
        return self.run.partial_rope(x, positions, self.s.rope, THETA, inverse, "interleaved", out=x)

    def attention(self, x: Floats, positions: NDArray[np.int64], cache: Cache) -> Floats:
        """[T, D] of x [T, D]: each token over its list of compressed entries and of the last tokens."""
        s, count = self.s, len(x)
        low = self.run.rms_norm(self.product("q_a", x), self.w["q_norm"])
        q = self.run.rms_norm(self.product("q_b", low).reshape(count, s.heads, s.head_dim))
        kv = self.rope(self.run.rms_norm(self.product("kv", x), self.w["kv_norm"]), positions)
        cache.rows[0, cache.entries + positions] = kv
        self.compress("pool", x, positions, cache.pool, cache.rows[0])
        if cache.overlap:
            self.compress("index", x, positions, cache.index_pool, cache.index_keys)
        lists = self.lists(x, low, positions, cache)
        rows = np.broadcast_to(cache.rows, (count, *cache.rows.shape))  # one cache for all tokens, not copied
        out = self.run.sparse_sdpa_decode(self.rope(q, positions), rows, rows, lists, self.w["sink"])
        out = self.rope(out, positions, inverse=True)  # values are turned, as they are keys too
        # Groups of heads have matrices of their own, like experts that are chosen by place.
        groups = np.tile(np.arange(s.o_groups), count)[:, None]
        grouped = self.run.moe_matmul(out.reshape(count * s.o_groups, -1), self.w["o_a"], groups)
        return self.product("o_b", grouped.reshape(count, -1))

    def compress(self, name: str, x: Floats, positions: NDArray[np.int64], pool: Pool, rows: Floats) -> None:
        """Add x [T, D] to the windows of a pool; those that are full become rows, turned as their first tokens are."""
        full = pool.put(positions, self.product(f"{name}_kv", x), self.product(f"{name}_gate", x))
        if full.start == full.stop:
            return
        entries = self.run.compressor_pool(pool.gate[full], pool.kv[full], self.w[f"{name}_ape"], ape_on="gate")
        entries = self.run.rms_norm(entries, self.w[f"{name}_norm"])
        rows[full] = self.rope(entries, np.arange(full.start, full.stop) * pool.ratio)

    def lists(self, x: Floats, low: Floats, positions: NDArray[np.int64], cache: Cache) -> NDArray[np.int32]:
        """The rows of the cache [T, n] that each token attends to; -1 fills up the shorter lists."""
        s, found = self.s, []
        indexed = cache.overlap and (int(positions[-1]) + 1) // cache.ratio > s.top
        if indexed:
            q = self.rope(self.product("index_q", low).reshape(len(x), s.index_heads, s.index_dim), positions)
            w = self.product("index_w", x) * np.float32((s.index_heads * s.index_dim) ** -0.5)
        for token, position in enumerate(positions.tolist()):
            seen = (position + 1) // cache.ratio  # entries of windows that end at this token or before
            chosen = np.arange(seen)
            if indexed and seen > s.top:
                chosen = self.run.indexer_select(q[token], cache.index_keys[:seen], w[token], s.top)
            last = min(s.window, position + 1)
            found.append(self.run.gather_list(chosen, cache.entries + position + 1, last))
        lists = np.full((len(found), max(map(len, found))), -1, np.int32)
        for row, one in zip(lists, found, strict=True):
            row[: len(one)] = one
        return lists

    def experts(self, x: Floats) -> Floats:
        """[T, D] of x [T, D]: each token's experts, and the one that all tokens share."""
        s, w = self.s, self.w
        logits = self.product("router", x)
        ids, shares = self.run.route(logits, w["bias"], s.chosen, scale=ROUTED_SCALE, normalize=True)
        routed = self.run.moe_ffn(x, w["gate"], w["up"], w["down"], ids, shares, limit=SWIGLU_LIMIT)
        shared, one = (w["shared_gate"], w["shared_up"], w["shared_down"]), np.ones((len(x), 1), np.float32)
        added: Floats = self.run.vector_add(routed, self.run.moe_ffn(x, *shared, np.zeros_like(one, int), one))
        return added
