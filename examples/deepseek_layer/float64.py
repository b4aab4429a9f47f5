"""The same layer in float64, as its definition says it: no cache, no lists, no quantized product.

It is given all tokens at once and yields the results of some. Operators are those of `cbquant.reference.deepseek`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from layer import EPSILON, ROUTED_SCALE, SWIGLU_LIMIT, THETA
from numpy.typing import NDArray
from weights import Sizes, Weights

from cbquant.reference import deepseek as reference

Doubles = NDArray[np.float64]


def norm(x: Doubles, weight: Any = 1.0) -> Doubles:
    normed: Doubles = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * weight
    return normed


def gap(scores: Doubles, count: int) -> float:
    """By how much the last of the `count` largest scores is above the next one."""
    falling = np.sort(scores)[::-1]
    return float(falling[count - 1] - falling[count]) if count < len(falling) else np.inf


class Float64:
    """The layer over all tokens' streams [T, 4, D]."""

    def __init__(self, s: Sizes, weights: Weights, attention: str, streams: Any) -> None:
        self.s, self.w, self.overlap = s, weights, attention == "csa"
        self.ratio = s.csa_ratio if self.overlap else s.hca_ratio
        self.streams = np.asarray(streams, np.float64)
        pre, self.post, self.comb = self.split("attention", self.streams)
        self.x = norm(reference.mhc_collapse(pre, self.streams), self.weight("attention_norm"))
        self.places = np.arange(len(self.x))
        self.rows = self.rope(norm(self.product("kv", self.x), self.weight("kv_norm")), self.places)
        self.entries = self.pooled("pool")
        self.keys = self.pooled("index") if self.overlap else self.entries

    def results(self, tokens: Sequence[int]) -> Iterator[tuple[Doubles, float]]:
        """For each of `tokens` its next streams [4, D], and how clearly its entries and experts were chosen."""
        chosen = list(tokens)
        blocks, clear = self.attention(chosen)
        streams = reference.mhc_expand(blocks, self.post[chosen], self.comb[chosen], self.streams[chosen], "src_dst")
        pre, post, comb = self.split("ffn", streams)
        x = norm(reference.mhc_collapse(pre, streams), self.weight("ffn_norm"))
        logits = self.product("router", x)
        ids, shares = reference.route(logits, self.w["bias"], self.s.chosen, ROUTED_SCALE, normalize=True)
        biased = reference.router_sqrtsoftplus(logits, self.w["bias"])[1]
        for i in range(len(chosen)):
            out = self.expert("shared_", 0, x[i], 1.0, None)
            for expert, share in zip(ids[i], shares[i], strict=True):
                out = out + self.expert("", int(expert), x[i], float(share), SWIGLU_LIMIT)
            one = slice(i, i + 1)
            following = reference.mhc_expand(out[None], post[one], comb[one], streams[one], "src_dst")[0]
            yield following, min(clear[i], gap(biased[i], self.s.chosen))

    def attention(self, tokens: list[int]) -> tuple[Doubles, list[float]]:
        """[len(tokens), D], and how clearly the entries were chosen."""
        s, x, places = self.s, self.x[tokens], self.places[tokens]
        low = norm(self.product("q_a", x), self.weight("q_norm"))
        q = self.rope(norm(self.product("q_b", low).reshape(-1, s.heads, s.head_dim)), places)
        outs, clear = [], []
        for i, token in enumerate(tokens):
            entries, margin = self.chosen_entries(token, x[i], low[i])
            rows = np.concatenate([entries, self.rows[max(token + 1 - s.window, 0) : token + 1]])[None]
            outs.append(reference.sdpa_decode_sink(q[i], rows, rows, self.w["sink"]))
            clear.append(margin)
        turned = reference.partial_rope(np.array(outs), places, s.rope, THETA, True, "interleaved")
        groups = turned.reshape(len(tokens), s.o_groups, -1)
        grouped = np.einsum("tgk,gnk->tgn", groups, self.weight("o_a"), optimize=True)
        return self.product("o_b", grouped.reshape(len(tokens), -1)), clear

    def chosen_entries(self, token: int, x: Doubles, low: Doubles) -> tuple[Doubles, float]:
        """The entries that a token attends to, and by how much the last of them was better than the next one."""
        s, seen = self.s, (token + 1) // self.ratio
        if not self.overlap or seen <= s.top:
            return self.entries[:seen], np.inf
        q = self.rope(self.product("index_q", low).reshape(1, s.index_heads, s.index_dim), self.places[[token]])[0]
        w = self.product("index_w", x) / np.sqrt(s.index_heads * s.index_dim)
        score = reference.indexer_score(q, self.keys[:seen], w)
        return self.entries[reference.indexer_topk(score, s.top)], gap(score, s.top)

    def pooled(self, name: str) -> Doubles:
        """The compressed entries of whole windows, one after the other."""
        kv, gate, ape = self.product(f"{name}_kv", self.x), self.product(f"{name}_gate", self.x), self.w[f"{name}_ape"]
        columns, found = ape.shape[1], []
        for end in range(self.ratio, len(self.x) + 1, self.ratio):
            own, before = slice(end - self.ratio, end), slice(max(end - 2 * self.ratio, 0), end - self.ratio)
            parts = [(own, slice(-columns, None))]
            if self.overlap:
                parts.insert(0, (before, slice(0, columns)))
            values, gates = (np.concatenate([array[part] for part in parts]) for array in (kv, gate))
            places = ape[len(ape) - len(values) :]
            found.append(reference.compressor_pool(gates[None], values[None], places, "gate")[0])
        entries = np.array(found).reshape(-1, columns)
        return self.rope(norm(entries, self.weight(f"{name}_norm")), np.arange(len(entries)) * self.ratio)

    def expert(self, prefix: str, number: int, x: Doubles, share: float, limit: float | None) -> Doubles:
        gate, up, down = (np.asarray(self.w[prefix + name][number])[None] for name in ("gate", "up", "down"))
        return reference.moe_ffn(x[None], gate, up, down, [[0]], [[share]], limit=limit)[0]

    def split(self, name: str, streams: Doubles) -> tuple[Doubles, Doubles, Doubles]:
        mix = self.product(f"{name}_mix", norm(streams.reshape(len(streams), -1)))
        return reference.mhc_sinkhorn_split(mix, self.w[f"{name}_scale"], self.w[f"{name}_base"], end="columns")

    def rope(self, x: Doubles, places: Any) -> Doubles:
        return reference.partial_rope(x, places, self.s.rope, THETA, pairs="interleaved")

    def product(self, name: str, x: Doubles) -> Doubles:
        product: Doubles = x @ self.weight(name).T
        return product

    def weight(self, name: str) -> Doubles:
        return np.asarray(self.w[name]).astype(np.float64)
