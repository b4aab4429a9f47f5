"""Decoding in cache: section B, one thread, each set of kernels that this machine can run."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

import cbquant
from benchmarks.blocks import random_blocks
from benchmarks.ceilings import cache_fills
from benchmarks.dequant import targets
from benchmarks.dequant.plan import Plan
from benchmarks.machine import touched_memory
from benchmarks.plan import Done
from benchmarks.report import Row, judge
from benchmarks.timing import Call, fastest, measure, ratio
from cbquant import _core
from cbquant._formats import Format

# The blocks of a ring together, so that they stay beside the output in a second-level cache.
_RING_BYTES = 512 << 10
_MAX_RING = 4


def kernels() -> list[str]:
    """The sets of kernels that this machine can run, the weakest first; each is also the name of a level."""
    return [name for name, available, own in _core.isa_levels() if available and own == name]


def ring_of_blocks(fmt: Format, elements: int) -> list[NDArray[np.uint8]]:
    """Arrays of different blocks, to be decoded in turns: as many as `_RING_BYTES` hold, at most `_MAX_RING`.

    With the usual sizes, 256 to 1024 different rows of 256 elements go by before one comes again: no branch
    predictor learns them.
    """
    size = elements // fmt.elements * fmt.bytes
    return [random_blocks(fmt, elements, seed) for seed in range(max(1, min(_MAX_RING, _RING_BYTES // size)))]


def in_cache(plan: Plan, done: Done) -> list[Row]:
    """Section B. The target is for the kernels in use; the others are there for comparison."""
    out = touched_memory(plan.cache_bytes).view(np.float32)
    in_use = cbquant.info()["kernels"]
    rows = []
    for fmt in plan.formats:
        ring = ring_of_blocks(fmt, out.size)
        candidates: dict[tuple[str, str], list[Call]] = {
            ("kernels", name): [partial(_core.dequant, raw, fmt.name, out, "float32", 1, name) for raw in ring]
            for name in kernels()
        }
        candidates |= {("fill", name): calls for name, calls in cache_fills(out).items()}
        timings = measure(candidates, plan.rounds, plan.sample_seconds)
        fills = {name: timing for (what, name), timing in timings.items() if what == "fill"}
        ceiling = fastest(fills)
        for name in kernels():
            own = timings["kernels", name]
            of_ceiling = ratio(fills[ceiling], own)
            target = targets.IN_CACHE.get(fmt.name, targets.IN_CACHE_DEFAULT) if name == in_use else None
            rows.append(
                {
                    "format": fmt.name,
                    "variant": name,
                    "output_bytes": out.nbytes,
                    "stored_bytes": sum(raw.nbytes for raw in ring),
                    "seconds": own.seconds,
                    "spread": own.spread,
                    "ceiling": ceiling,
                    "ceiling_seconds": {kind: timing.seconds for kind, timing in fills.items()},
                    "figure": of_ceiling,
                    "judged": judge(of_ceiling, ">=", target),
                }
            )
        done(fmt.name)
    return rows


def call_seconds(plan: Plan) -> dict[str, float]:
    """What a call costs that has next to nothing to do: one block of the first format, 64 bytes to fill."""
    fmt = plan.formats[0]
    raw = random_blocks(fmt, fmt.elements)
    out = np.ones(fmt.elements, np.float32)
    fills = cache_fills(np.ones(16, np.float32))
    candidates: dict[str, list[Call]] = {
        "cbquant._core.dequant": [partial(_core.dequant, raw, fmt.name, out, "float32", 1)],
        "cbquant.dequant": [partial(cbquant.dequant, raw, fmt.name, out=out, threads=1)],
        "ndarray.fill": fills["fill"],
        "ctypes.memset": fills["memset"],
    }
    timings = measure(candidates, plan.rounds, plan.sample_seconds)
    return {name: timing.seconds for name, timing in timings.items()}
