"""Planes to memory: sections A (float32, two sizes) and B (float16 and bfloat16), against the ceiling that
benchmarks.dequant has for blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.ceilings import Crew
from benchmarks.dequant.memory import beside_fills, of_fastest_fill
from benchmarks.machine import touched_memory
from benchmarks.matmul.plan import shape_word
from benchmarks.plan import Done
from benchmarks.planes import targets
from benchmarks.planes.cases import Stored, cases
from benchmarks.planes.plan import Plan
from benchmarks.report import Row, judge
from benchmarks.timing import Call
from benchmarks.words import size_word, threads_word


def to_memory(plan: Plan, done: Done) -> list[Row]:
    """Section A: float32 into memory that was used before, for each number of threads."""
    crews = [Crew(count) for count in plan.threads]
    rows: list[Row] = []
    for shape, rounds in ((plan.shape, plan.rounds), (plan.large, plan.at_most(plan.large_rounds))):
        memory = touched_memory(4 * shape[0] * shape[1])
        for case in cases(plan.formats):
            rows += _one(Stored(case, *shape), "float32", memory, crews, rounds)
            done(f"{case.name} {shape_word(*shape)}")
    return rows


def to_memory_16bit(plan: Plan, done: Done) -> list[Row]:
    """Section B: the same for 16-bit floats with the largest number of threads."""
    crews = [Crew(max(plan.threads))]
    rows: list[Row] = []
    memory = touched_memory(2 * plan.shape[0] * plan.shape[1])
    for case in cases(plan.formats):
        stored = Stored(case, *plan.shape)
        for dtype in ("float16", "bfloat16"):
            rows += _one(stored, dtype, memory, crews, plan.rounds)
        done(case.name)
    return rows


def _one(stored: Stored, dtype: str, memory: NDArray[np.uint8], crews: list[Crew], rounds: int) -> list[Row]:
    out: NDArray[Any] = memory.view("uint16" if dtype == "bfloat16" else dtype)

    def own(threads: int) -> Call:
        return lambda: stored.decode(out, dtype, threads)

    rows = []
    for threads, timings in beside_fills(own, out, crews, rounds).items():
        found = of_fastest_fill(timings, out, stored.cold)
        is_float32 = dtype == "float32"
        size = f"{shape_word(stored.n, stored.k)}, {size_word(out.nbytes)}"
        rows.append(
            {
                "format": stored.case.name,
                "group": size if is_float32 else f"{size}, {threads_word(threads)}",
                "variant": threads_word(threads) if is_float32 else dtype,
                "dtype": dtype,
                "threads": threads,
                **found,
                "judged": judge(found["figure"], ">=", targets.to_memory(dtype, threads)),
            }
        )
    return rows
