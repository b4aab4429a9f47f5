"""Several threads against one: section C."""

from __future__ import annotations

from benchmarks.plan import Done
from benchmarks.quantize import targets
from benchmarks.quantize.encoders import cases, own_call, room
from benchmarks.quantize.inputs import DENSE, draw
from benchmarks.quantize.plan import Plan
from benchmarks.report import Row, judge
from benchmarks.timing import Call, measure, ratio
from benchmarks.words import threads_word


def against_one_thread(plan: Plan, done: Done) -> list[Row]:
    """A row for each format, importance and number of threads from two up."""
    rows: list[Row] = []
    x = draw(DENSE, plan.many_rows, plan.k)
    for fmt in plan.formats:
        out = room(fmt, x)
        for name, weights in cases(fmt, plan.k):
            candidates: dict[int, list[Call]] = {
                count: [own_call(fmt, x, weights, out, threads=count)] for count in sorted({1, *plan.threads})
            }
            timings = measure(candidates, plan.rounds, plan.sample_seconds)
            for count in sorted({*plan.threads} - {1}):
                times = ratio(timings[1], timings[count])
                rows.append(
                    {
                        "format": fmt.name,
                        "group": threads_word(count),
                        "variant": name,
                        "elements": x.size,
                        "seconds": {str(key): timing.seconds for key, timing in timings.items()},
                        "figure": times,
                        "judged": judge(times, ">=", targets.of_one_thread(count)),
                    }
                )
        done(fmt.name)
    return rows
