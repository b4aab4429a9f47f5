"""One layer of DeepSeek-V4-Flash with random weights, made of cbquant's operators: prefill, decode, times, a check.

    python examples/deepseek_layer --small
    python examples/deepseek_layer [--attention csa] [--tokens 2200] [--steps 16] [--check]

weights.py has the sizes and the weights, which stay quantized as in real files: experts in iq2_xxs and q2_k, the rest
in q8_0. layer.py is the layer, float64.py the same by its definition. The attention of a layer is "csa" (entries of 4
tokens each, of which an indexer chooses 512) or "hca" (entries of 128 tokens, all of them); both also see the last 128
tokens. The full sizes take 4 GB of memory. --check, which --small implies, compares with float64.

The wiring is that of the model's own inference/model.py and of transformers' deepseek_v4. Left out: YaRN, which scales
some of the angles; the indexer's Hadamard rotation, which changes no product; the rounding of caches to 8 and 4 bits.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from float64 import Float64
from layer import Cache, Floats, Layer
from weights import SMALL, Sizes, Weights, normal, random_weights

import cbquant
from cbquant.cli.output import Column, print_table

#: Of the output, |a - b| <= TOLERANCE * (1 + |b|): the operators' in float32 but for attention, which may have 1e-3.
TOLERANCE = 1e-4
#: Scores that differ by less may be ranked otherwise in float32, which is no mistake: such a token is not compared.
MARGIN = 1e-5
#: The most tokens of the prompt, and of the decoded ones, that are compared at the full sizes.
CHECKED = 4

COLUMNS = (
    Column("operator"),
    Column("prefill ms", right=True),
    Column("decode ms/token", right=True),
    Column("%", right=True),
)


def run(layer: Layer, cache: Cache, streams: Floats, tokens: int) -> tuple[Floats, list[float], list[dict[str, float]]]:
    """The outputs of a prompt of so many tokens and of the others, one by one; seconds, also those of each operator."""
    outputs, seconds, parts = [], [], []
    for begin, end in [(0, tokens), *((i, i + 1) for i in range(tokens, len(streams)))]:
        layer.run.seconds.clear()
        start = time.perf_counter()
        outputs.append(layer.forward(streams[begin:end], cache))
        seconds.append(time.perf_counter() - start)
        parts.append(dict(layer.run.seconds))
    return np.concatenate(outputs), seconds, parts


def print_times(seconds: Sequence[float], parts: Sequence[dict[str, float]]) -> None:
    """A row for each operator: its time in the prompt, and its median in the other steps."""
    names = sorted(parts[0] | parts[-1], key=lambda name: -parts[-1].get(name, 0.0))
    rows = [(name, [part.get(name, 0.0) for part in parts]) for name in names]
    rows.append(("all else", [whole - sum(part.values()) for whole, part in zip(seconds, parts, strict=True)]))

    def cells(name: str, times: Sequence[float]) -> tuple[str, str, str, str]:
        step = float(np.median(times[1:]))
        return name, f"{1e3 * times[0]:.1f}", f"{1e3 * step:.3f}", f"{100 * step / np.median(seconds[1:]):.0f}"

    print_table(COLUMNS, [cells(name, times) for name, times in rows], cells("layer", seconds))


def compare(exact: Float64, outputs: Floats, tokens: Sequence[int]) -> tuple[float, int]:
    """The largest |a - b| / (1 + |b|) of the outputs of `tokens`, and how many of them were compared."""
    worst, compared = 0.0, 0
    for token, (expected, margin) in zip(tokens, exact.results(tokens), strict=True):
        if margin >= MARGIN:
            error = np.abs(outputs[token] - expected) / (1 + np.abs(expected))
            worst, compared = max(worst, float(error.max()) if np.isfinite(error).all() else np.inf), compared + 1
    return worst, compared


def checked(tokens: int, total: int, is_small: bool) -> list[int]:
    """The tokens to compare: all, or a few of the prompt and of those after it, the last ones included."""
    if is_small:
        return list(range(total))
    of_prompt, of_steps = np.linspace(0, tokens - 1, CHECKED), np.linspace(tokens, total - 1, CHECKED)
    return sorted({int(token) for token in (*of_prompt, *of_steps)})


def show(s: Sizes, attention: str, args: argparse.Namespace) -> bool:
    """Run and print one layer; whether it is right, as far as that was looked at."""
    rng = np.random.default_rng(args.seed)
    begin = time.perf_counter()
    weights: Weights = random_weights(rng, s, attention)
    size = sum(w.nbytes for w in weights.values()) / 2**20
    streams = normal(rng, args.tokens + args.steps, 4, s.hidden)
    print(f"\n{attention}: {size:,.0f} MiB of weights, made in {time.perf_counter() - begin:.1f} s")
    layer, cache = Layer(s, weights, args.threads), Cache(s, attention, len(streams))
    outputs, seconds, parts = run(layer, cache, streams, args.tokens)
    rate = args.tokens / seconds[0], 1 / float(np.median(seconds[1:]))
    print(
        f"prompt of {args.tokens} tokens: {rate[0]:,.0f} tokens/s; then {args.steps} tokens: {rate[1]:,.1f} tokens/s\n"
    )
    print_times(seconds, parts)
    if not (args.small or args.check):
        return True
    tokens = checked(args.tokens, len(streams), args.small)
    error, compared = compare(Float64(s, weights, attention, streams), outputs, tokens)
    is_right = error <= TOLERANCE and compared > 0
    verdict = "within" if is_right else "NOT within"
    print(f"\n{compared} of {len(tokens)} tokens compared with float64: {error:.1e}, {verdict} {TOLERANCE:g}")
    return is_right


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the arguments say; the exit code is 1 where an output is wrong."""
    parser = argparse.ArgumentParser(description="One layer of DeepSeek-V4-Flash made of cbquant's operators.")
    parser.add_argument("--small", action="store_true", help="small sizes, all compared with float64")
    parser.add_argument("--attention", choices=("csa", "hca"), help="default: one after the other")
    parser.add_argument("--tokens", type=int, help="of the prompt (default: 2200, or 60 with --small)")
    parser.add_argument("--steps", type=int, default=16, help="tokens after it (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="compare some tokens with float64")
    parser.add_argument("--threads", type=int, help="default: what cbquant takes")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers (default: %(default)s)")
    args = parser.parse_args(argv)
    args.tokens = (60 if args.small else 2200) if args.tokens is None else args.tokens
    for name, value in (("tokens", args.tokens), ("steps", args.steps), ("threads", args.threads)):
        if value is not None and value < 1:
            parser.error(f"--{name}: expected 1 or more, got {value}")
    s: Any = SMALL if args.small else Sizes()
    info = cbquant.info()
    print(f"cbquant {info['version']}, {info['isa']}, {args.threads or info['threads']} threads")
    print(", ".join(f"{name} {value}" for name, value in s._asdict().items()))
    kinds = (args.attention,) if args.attention else ("csa", "hca")
    are_right = [show(s, kind, args) for kind in kinds]
    return 0 if all(are_right) else 1


if __name__ == "__main__":
    sys.exit(main())
