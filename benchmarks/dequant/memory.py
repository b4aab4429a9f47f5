"""Decoding to memory: sections A (float32), D (into new arrays) and E (float16 and bfloat16)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cbquant
from benchmarks.blocks import ColdCopies, random_blocks
from benchmarks.ceilings import Crew, fresh_fill, memory_fills, scale
from benchmarks.dequant import targets
from benchmarks.dequant.plan import Plan
from benchmarks.machine import touched_memory
from benchmarks.plan import Done
from benchmarks.report import Row, judge
from benchmarks.timing import Call, Timing, fastest, measure, ratio
from benchmarks.words import threads_word
from cbquant._formats import Format

#: The key of the timing that is no fill's.
OWN = "cbquant"


def to_memory(plan: Plan, done: Done) -> list[Row]:
    """Section A: float32 into memory that was touched before, for each number of threads."""
    return _into_used_memory(plan, ("float32",), plan.threads, done)


def to_memory_16bit(plan: Plan, done: Done) -> list[Row]:
    """Section E: the same for float16 and bfloat16 with the largest number of threads."""
    return _into_used_memory(plan, ("float16", "bfloat16"), (max(plan.threads),), done)


def _into_used_memory(plan: Plan, dtypes: tuple[str, ...], threads: tuple[int, ...], done: Done) -> list[Row]:
    memory = touched_memory(plan.memory_bytes)
    crews = [Crew(count) for count in threads]
    rows = []
    for fmt in plan.formats:
        for dtype in dtypes:
            rows += _one_format(fmt, dtype, memory, crews, plan.rounds)
        done(fmt.name)
    return rows


def _one_format(fmt: Format, dtype: str, memory: NDArray[np.uint8], crews: list[Crew], rounds: int) -> list[Row]:
    out: NDArray[Any] = memory.view("uint16" if dtype == "bfloat16" else dtype)
    blocks = ColdCopies(random_blocks(fmt, out.size))
    timings = beside_fills(partial(partial, _decode_next, blocks, fmt.name, dtype, out), out, crews, rounds)
    return [_row(fmt, dtype, threads, out, blocks, mine) for threads, mine in timings.items()]


def beside_fills(
    own: Callable[[int], Call], out: NDArray[Any], crews: Sequence[Crew], rounds: int
) -> dict[int, dict[str, Timing]]:
    """For each number of threads how long the call for it takes (the key is `OWN`), and how long each way to fill
    `out`, all in the same rounds."""
    candidates: dict[tuple[int, str], list[Call]] = {}
    for crew in crews:
        candidates[crew.threads, OWN] = [own(crew.threads)]
        for kind, calls in memory_fills(out, crew).items():
            candidates[crew.threads, kind] = calls
    timings = measure(candidates, rounds)
    return {
        crew.threads: {kind: timing for (count, kind), timing in timings.items() if count == crew.threads}
        for crew in crews
    }


def _decode_next(blocks: ColdCopies, fmt: str, dtype: str, out: NDArray[Any], threads: int) -> None:
    cbquant.dequant(blocks.next(), fmt, dtype=dtype, out=out, threads=threads)


def _row(
    fmt: Format, dtype: str, threads: int, out: NDArray[Any], blocks: ColdCopies, timings: Mapping[str, Timing]
) -> Row:
    found = of_fastest_fill(timings, out, blocks)
    return {
        "format": fmt.name,
        "variant": threads_word(threads) if dtype == "float32" else dtype,
        "dtype": dtype,
        "threads": threads,
        **found,
        "judged": judge(found["figure"], ">=", targets.to_memory(fmt, dtype, threads)),
    }


def of_fastest_fill(timings: Mapping[str, Timing], out: NDArray[Any], stored: ColdCopies) -> Row:
    """What rows say of decoding `stored` to `out`, timed by `beside_fills`: as a part of the fastest fill, and of that
    fill's speed where memory delivers the codes too. The latter is the figure where it does."""
    fills = {kind: timing for kind, timing in timings.items() if kind != OWN}
    ceiling = fastest(fills)
    of_ceiling = ratio(fills[ceiling], timings[OWN])
    of_scaled = of_ceiling / scale(out.itemsize, stored.nbytes / out.size)
    return {
        "output_bytes": out.nbytes,
        "stored_bytes": stored.nbytes,
        "seconds": timings[OWN].seconds,
        "spread": timings[OWN].spread,
        "ceiling": ceiling,
        "ceiling_seconds": {kind: timing.seconds for kind, timing in fills.items()},
        "of_ceiling": of_ceiling,
        "of_scaled_ceiling": of_scaled,
        "blocks_from_memory": stored.are_cold,
        "figure": of_scaled if stored.are_cold else of_ceiling,
    }


def into_new_arrays(plan: Plan, done: Done) -> list[Row]:
    """Section D: float32 into an array that the call allocates, against ``np.empty`` and ``fill``."""
    elements = plan.memory_bytes // 4
    crews = [Crew(count) for count in plan.threads]
    rows = []
    for fmt in plan.formats:
        raw = random_blocks(fmt, elements)
        candidates: dict[tuple[int, str], list[Call]] = {}
        for crew in crews:
            candidates[crew.threads, OWN] = [partial(cbquant.dequant, raw, fmt.name, threads=crew.threads)]
            candidates[crew.threads, "fill"] = [fresh_fill(elements, crew)]
        timings = measure(candidates, plan.rounds)
        for crew in crews:
            own, fill = timings[crew.threads, OWN], timings[crew.threads, "fill"]
            times = ratio(own, fill)
            rows.append(
                {
                    "format": fmt.name,
                    "variant": threads_word(crew.threads),
                    "threads": crew.threads,
                    "output_bytes": 4 * elements,
                    "seconds": own.seconds,
                    "spread": own.spread,
                    "fill_seconds": fill.seconds,
                    "figure": times,
                    "judged": judge(times, "<=", targets.fresh(fmt)),
                }
            )
        done(fmt.name)
    return rows
