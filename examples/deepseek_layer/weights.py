"""The sizes of a layer, and random weights in the formats of real files."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cbquant

Weights = dict[str, Any]  # QuantTensor for matrices, float32 arrays for the others


class Sizes(NamedTuple):
    """Of a layer; the defaults are those of DeepSeek-V4-Flash."""

    hidden: int = 4096
    heads: int = 64
    head_dim: int = 512
    rope: int = 64
    q_rank: int = 1024
    o_groups: int = 8
    o_rank: int = 1024
    window: int = 128
    csa_ratio: int = 4
    hca_ratio: int = 128
    top: int = 512
    index_heads: int = 64
    index_dim: int = 128
    experts: int = 288
    chosen: int = 8
    inner: int = 2048


SMALL = Sizes(256, 4, 64, 16, 64, 2, 64, 8, 4, 16, 5, 4, 32, 16, 3, 256)


def with_scales(blocks: NDArray[np.uint8], fmt: str, scale: float) -> NDArray[np.uint8]:
    """Blocks [n, bytes] whose float16 scale is `scale`; the minimum of q2_k, 1.5 times it, makes the mean 0."""
    place, values = (80, [scale, 1.5 * scale]) if fmt == "q2_k" else (0, [scale])
    blocks[:, place : place + 2 * len(values)] = np.array(values, "<f2").view(np.uint8)
    return blocks


def random_tensor(rng: np.random.Generator, fmt: str, *shape: int) -> cbquant.QuantTensor:
    """Random weights [.., N, K] of variance 1 / K: in q8_0, iq2_xxs and q2_k any bytes but the scales are codes."""
    form = next(form for form in cbquant.formats() if form.name == fmt)
    blocks = rng.integers(0, 256, (math.prod(shape) // form.elements, form.bytes), np.uint8)
    deviation = float(cbquant.dequant(with_scales(blocks[:1000].copy(), fmt, 1.0), fmt).std())
    return cbquant.QuantTensor(with_scales(blocks, fmt, 1 / (deviation * shape[-1] ** 0.5)), fmt, shape)


def random_weights(rng: np.random.Generator, s: Sizes, attention: str) -> Weights:
    """All of a layer, by names like those of a GGUF file."""
    wide = s.heads * s.head_dim
    matrices: dict[str, tuple[int, ...]] = {
        "q_a": (s.q_rank, s.hidden),
        "q_b": (wide, s.q_rank),
        "kv": (s.head_dim, s.hidden),
        "o_a": (s.o_groups, s.o_rank, wide // s.o_groups),
        "o_b": (s.hidden, s.o_groups * s.o_rank),
        "shared_gate": (1, s.inner, s.hidden),
        "shared_up": (1, s.inner, s.hidden),
        "shared_down": (1, s.hidden, s.inner),
    }
    pools = {"pool": s.head_dim}
    if attention == "csa":
        matrices |= {"index_q": (s.index_heads * s.index_dim, s.q_rank), "index_w": (s.index_heads, s.hidden)}
        pools["index"] = s.index_dim
    vectors: dict[str, tuple[int, ...]] = {"q_norm": (s.q_rank,), "kv_norm": (s.head_dim,)}
    for name, width in pools.items():
        columns = 2 * width if attention == "csa" else width
        matrices |= {f"{name}_kv": (columns, s.hidden), f"{name}_gate": (columns, s.hidden)}
        vectors[f"{name}_norm"] = (width,)
    w: Weights = {name: random_tensor(rng, "q8_0", *shape) for name, shape in matrices.items()}
    for name, fmt in (("gate", "iq2_xxs"), ("up", "iq2_xxs")):
        w[name] = random_tensor(rng, fmt, s.experts, s.inner, s.hidden)
    w["down"] = random_tensor(rng, "q2_k", s.experts, s.hidden, s.inner)
    vectors |= {"attention_norm": (s.hidden,), "ffn_norm": (s.hidden,)}
    w |= {name: 1 + normal(rng, *shape) / 10 for name, shape in vectors.items()}
    for name, columns in (("attention_mix", 4 * s.hidden), ("ffn_mix", 4 * s.hidden), ("router", s.hidden)):
        rows = s.experts if name == "router" else 24
        values = normal(rng, rows, columns) / np.float32(columns**0.5)
        w[name] = cbquant.QuantTensor(values.view(np.uint8), "f32", values.shape)
    for name in ("attention", "ffn"):
        w |= {f"{name}_scale": 1 + normal(rng, 3) / 10, f"{name}_base": normal(rng, 24) / 2}
    w |= {"sink": normal(rng, s.heads), "bias": normal(rng, s.experts) / 10}
    rows = 2 * s.csa_ratio if attention == "csa" else s.hca_ratio
    return w | {f"{name}_ape": normal(rng, rows, width) / 2 for name, width in pools.items()}


def normal(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return rng.standard_normal(shape, np.float32)
