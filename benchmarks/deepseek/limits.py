"""Operators whose time is that of memory, next to copying and reading it: section A."""

from __future__ import annotations

from benchmarks.ceilings import Crew, memory_copies
from benchmarks.deepseek import targets
from benchmarks.deepseek.cases import Case, room
from benchmarks.deepseek.elementwise import BY_MEMORY, chosen
from benchmarks.deepseek.plan import DTYPES, Plan
from benchmarks.peaks import Memory
from benchmarks.plan import Done
from benchmarks.report import Row, judge
from benchmarks.timing import Call, Timing, measure
from benchmarks.words import threads_word


def next_to_memory(plan: Plan, done: Done) -> list[Row]:
    """A row for each operator, dtype and number of threads."""
    source, copy, memory = room((plan.copy_bytes,), "uint8"), room((plan.copy_bytes,), "uint8"), Memory()
    crews = [Crew(count) for count in plan.threads]
    rows: list[Row] = []
    for maker in chosen(BY_MEMORY, plan.operators):
        for dtype in DTYPES:
            case = maker(plan, plan.tokens, dtype)
            for crew in crews:
                reads = memory.reads(crew)
                candidates: dict[tuple[str, str], list[Call]] = {("own", ""): [case.own(crew.threads)]}
                candidates |= {("copy", kind): calls for kind, calls in memory_copies(source, copy, crew).items()}
                candidates |= {("read", kind): [peak.call] for kind, peak in reads.items()}
                timings = measure(candidates, plan.rounds, quiet=True)
                copying = 2 * plan.copy_bytes / _shortest(timings, "copy")
                reading = max((peak.work / timings["read", kind].seconds for kind, peak in reads.items()), default=0.0)
                rows.append(_row(case, dtype, crew.threads, timings["own", ""], copying, reading))
        done(maker.__name__)
    return rows


def _shortest(timings: dict[tuple[str, str], Timing], what: str) -> float:
    return min(timing.seconds for (kind, _), timing in timings.items() if kind == what)


def limit(read: int, written: int, copying: float, reading: float) -> float:
    """Seconds that memory takes: as much as is written is copied, and the rest read (or written, taken to be as fast as
    copying) at the speeds given, in bytes a second.

    >>> limit(300, 100, 100.0, 200.0)
    3.0
    """
    rest = read - written
    return (2 * min(read, written)) / copying + (rest / reading if rest > 0 and reading else abs(rest) / copying)


def _row(case: Case, dtype: str, threads: int, own: Timing, copying: float, reading: float) -> Row:
    figure = limit(case.read, case.written, copying, reading) / own.seconds
    return {
        "format": case.operator,
        "group": dtype,
        "variant": threads_word(threads),
        "threads": threads,
        "read": case.read,
        "written": case.written,
        "seconds": own.seconds,
        "spread": own.spread,
        "bytes_a_second": (case.read + case.written) / own.seconds,
        "copying": copying,
        "reading": reading,
        "figure": figure,
        "judged": judge(figure, ">=", targets.of_memory(case.operator, dtype, threads)),
    }
