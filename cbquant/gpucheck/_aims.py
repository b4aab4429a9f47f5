"""What speed was aimed at, on an H200: issue 7, "What must hold". Held or missed, from the rows of the benchmarks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Row = dict[str, Any]
FOUR_BITS = ("q4_0", "q4_k", "iq4_xs", "mxfp4")
#: Weights that count as large: those of smaller products may be in a cache.
LARGE = 128e6


class Aim(NamedTuple):
    """`rows` chooses those that it is for, `figure` is what counts of one."""

    text: str
    rows: Callable[[Row], bool]
    figure: Callable[[Row], float]
    target: float
    sense: str = ">="


def _product(m: int) -> Callable[[Row], bool]:
    return lambda r: r["what"] == "matmul" and r["m"] == m and r["format"] in FOUR_BITS and r["weight_bytes"] >= LARGE


AIMS = (
    Aim("dequant to bf16, part of a copy", lambda r: r["what"] == "dequant", lambda r: r["of_copy"], 0.85),
    Aim("M = 1, part of a copy", _product(1), lambda r: r["of_copy"], 0.7),
    Aim("M = 1, times as fast as bf16", _product(1), lambda r: r["times_bf16"], 2.8),
    Aim("M = 8, time against M = 1", _product(8), lambda r: r["of_one"], 1.15, "<="),
    Aim("M = 16, times as fast as bf16", _product(16), lambda r: r["times_bf16"], 3.0),
    Aim("M = 32, times as fast as bf16", _product(32), lambda r: r["times_bf16"], 2.3),
    Aim("M = 64, times as fast as bf16", _product(64), lambda r: r["times_bf16"], 1.6),
    Aim("M = 4096, part of bf16's speed", _product(4096), lambda r: r["times_bf16"], 0.85),
    Aim("MoE prefill, TFLOP/s", lambda r: r["what"] == "moe", lambda r: r["flop_per_second"] / 1e12, 450.0),
)
_SENSES = {">=": operator.ge, "<=": operator.le}


def judge(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """A verdict for each aim and each row that it is for; `held` is None where nothing was measured for it."""
    known = with_of_one(rows)
    verdicts: list[dict[str, Any]] = []
    for aim in AIMS:
        chosen = [row for row in known if aim.rows(row)]
        facts = {"aim": aim.text, "sense": aim.sense, "target": aim.target}
        if not chosen:
            verdicts.append({**facts, "format": None, "value": None, "held": None})
        for row in chosen:
            value = aim.figure(row)
            held = _SENSES[aim.sense](value, aim.target)
            verdicts.append({**facts, "format": row["format"], "value": value, "held": held})
    return verdicts


def with_of_one(rows: Iterable[Row]) -> list[Row]:
    """With the time of a product as a multiple of that with one row of x, where there is one."""
    kept = [dict(row) for row in rows]

    def key(row: Row) -> tuple[Any, ...]:
        return row["what"], row["format"], row.get("n"), row.get("k")

    ones = {key(row): row["seconds"] for row in kept if row.get("m") == 1}
    for row in kept:
        row["of_one"] = row["seconds"] / ones[key(row)] if key(row) in ones else float("nan")
    return kept
