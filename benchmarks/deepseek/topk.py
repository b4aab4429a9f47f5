"""indexer_topk next to NumPy's argpartition and sort, and to torch.topk, with one thread in float32: section E."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.deepseek import peers, targets
from benchmarks.deepseek.cases import Array, draw, room
from benchmarks.deepseek.plan import Plan
from benchmarks.plan import Done
from benchmarks.report import Row, judge
from benchmarks.timing import Call, measure, ratio
from cbquant import deepseek

#: Arrays of scores that are used in turns, so that no branch predictor knows them by heart.
_ARRAYS = 8


def in_numpy(score: Array, k: int) -> Array:
    """The indices of the k largest, by falling score.

    >>> in_numpy(np.float32([1, 3, 2, 0]), 2)
    array([1, 2])
    """
    found = np.argpartition(score, len(score) - k)[-k:]
    return found[np.argsort(-score[found], kind="stable")]


def next_to_peers(plan: Plan, done: Done) -> list[Row]:
    """A row for each size and peer."""
    rows: list[Row] = []
    for n, k in plan.choices:
        scores = [draw((n,), "float32", seed) for seed in range(_ARRAYS)]
        out = room((k,), "int32")
        others: dict[str, list[Call]] = {"NumPy": [partial(in_numpy, score, k) for score in scores]}
        if peers.torch_version():
            others["torch"] = _torch_calls(scores, k)
        own: list[Call] = [partial(deepseek.indexer_topk, score, k, out=out, threads=1) for score in scores]
        for name, calls in others.items():
            for score, mine, theirs in zip(scores, own, calls, strict=True):
                if not np.array_equal(score[mine()], score[np.asarray(theirs())]):  # others have no order of ties
                    raise RuntimeError(f"indexer_topk, {k} of {n}: {name} chooses others")
        timings = measure({"own": own} | others, plan.rounds, plan.sample_seconds, quiet=True)
        for name in others:
            figure = ratio(timings[name], timings["own"])
            rows.append(
                {
                    "format": "indexer_topk",
                    "group": f"times {name}",
                    "variant": f"{k} of {n}",
                    "seconds": timings["own"].seconds,
                    "peer_seconds": timings[name].seconds,
                    "figure": figure,
                    "judged": judge(figure, ">=", targets.of_topk(name, n, k)),
                }
            )
        done(f"{k} of {n}")
    return rows


def _torch_calls(scores: list[Array], k: int) -> list[Call]:
    import torch

    def call(tensor: Any) -> Call:
        return peers.in_torch(torch, lambda: tensor.topk(k).indices, 1)

    return [call(torch.from_numpy(score)) for score in scores]
