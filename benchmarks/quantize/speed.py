"""One thread next to ggml: each format, importance and kind of rows, all sets of kernels in the same rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable

import numpy as np

import cbquant
from benchmarks.dequant.cache import kernels
from benchmarks.plan import Done
from benchmarks.quantize import targets
from benchmarks.quantize.encoders import cases, check_same, ggml_call, own_call, room
from benchmarks.quantize.inputs import DENSE, Floats, draw
from benchmarks.quantize.plan import Plan
from benchmarks.report import Row, judge
from benchmarks.timing import Call, measure
from cbquant._formats import Format

_GGML = "ggml"


def measured(plan: Plan, done: Done) -> list[Row]:
    """A row for each format, importance and kind of rows: the seconds of a call, by who made it."""
    rows = []
    for fmt in plan.formats:
        for name, weights in cases(fmt, plan.k):
            count = row_count(fmt, weights, plan)
            for distribution in plan.distributions:
                rows.append(_one(fmt, name, weights, distribution, count, plan))
            done(f"{fmt.name} {name}")
    return rows


def row_count(fmt: Format, weights: Floats | None, plan: Plan) -> int:
    """As many rows as ggml encodes in the time that the plan says; without ggml the most that it allows."""
    least, most = plan.rows
    x = draw(DENSE, 1, plan.k)
    out = room(fmt, x)
    call = ggml_call(fmt, x, weights, out)
    if call is None:
        return most
    call()
    begin = time.perf_counter()
    call()
    return int(np.clip(plan.peer_seconds / (time.perf_counter() - begin), least, most))


def _one(fmt: Format, name: str, weights: Floats | None, distribution: str, rows: int, plan: Plan) -> Row:
    x = draw(distribution, rows, plan.k)
    theirs, outs = room(fmt, x), {kernel: room(fmt, x) for kernel in kernels()}
    candidates: dict[str, list[Call]] = {
        kernel: [own_call(fmt, x, weights, out, kernel)] for kernel, out in outs.items()
    }
    peer = ggml_call(fmt, x, weights, theirs)
    if peer is not None:
        peer()
        for kernel, out in outs.items():
            candidates[kernel][0]()
            check_same(fmt, distribution, out, theirs, kernel)
        candidates[_GGML] = [peer]
    timings = measure(candidates, plan.rounds, plan.sample_seconds)
    return {
        "format": fmt.name,
        "importance": name,
        "distribution": distribution,
        "rows": rows,
        "elements": x.size,
        "seconds": {key: timing.seconds for key, timing in timings.items()},
        "spread": {key: timing.spread for key, timing in timings.items()},
    }


def against_ggml(rows: Iterable[Row]) -> list[Row]:
    """Section A: times as fast as ggml, a group for each set of kernels and importance; then the geometric means."""
    in_use = cbquant.info()["kernels"]
    found: list[Row] = []
    for row in rows:
        if _GGML not in row["seconds"]:
            continue
        for kernel, seconds in row["seconds"].items():
            if kernel == _GGML:
                continue
            figure = row["seconds"][_GGML] / seconds
            target = targets.against_ggml(row["format"], row["distribution"], kernel == in_use)
            ratio = {"figure": figure, "judged": judge(figure, ">=", target)}
            found.append(row | {"group": f"{kernel}, {row['importance']}", "variant": row["distribution"]} | ratio)
    found.sort(key=lambda row: not row["group"].startswith(f"{in_use},"))  # those that are judged come first
    return found + _means(found)


def _means(rows: list[Row]) -> list[Row]:
    columns: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        columns.setdefault((row["group"], row["variant"]), []).append(row["figure"])
    return [
        {
            "format": None,
            "formats": len(figures),
            "group": group,
            "variant": variant,
            "figure": statistics.geometric_mean(figures),
            "judged": None,
        }
        for (group, variant), figures in columns.items()
    ]


def speeds(rows: Iterable[Row]) -> list[Row]:
    """Section B: millions of elements a second, of dense rows."""
    return [
        {
            "format": row["format"],
            "group": f"{row['distribution']}, {row['importance']}",
            "variant": key,
            "figure": row["elements"] / seconds / 1e6,
            "judged": None,
        }
        for row in rows
        if row["distribution"] == DENSE
        for key, seconds in row["seconds"].items()
    ]
