"""Encoding to planes: sections F (next to NumPy) and G (speed)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.plan import Done
from benchmarks.planes import numpy_encoders, optional
from benchmarks.planes.cases import Case, cases
from benchmarks.planes.plan import Plan
from benchmarks.quantize.inputs import DENSE, Floats, draw
from benchmarks.report import Row
from benchmarks.timing import Call, measure
from benchmarks.words import threads_word
from cbquant import planes

_NUMPY = "NumPy"
# Of codes, where scales or quotients were rounded in another order.
_DIFFERENT = 1e-3


def measured(plan: Plan, done: Done) -> list[Row]:
    """A row for each case: the seconds of a call, by who made it. All return new arrays."""
    x = draw(DENSE, plan.rows, plan.shape[1])
    rows: list[Row] = []
    for case in cases(plan.formats):
        candidates: dict[str, list[Call]] = {
            threads_word(count): [partial(planes.quantize, x, case.fmt.name, packed=case.packed, threads=count)]
            for count in sorted({1, *plan.threads})
        }
        if "ml_dtypes" in optional.versions():
            check_same(case, x)
            candidates[_NUMPY] = [partial(numpy_encoders.encode, case, x)]
        timings = measure(candidates, plan.rounds, plan.sample_seconds)
        rows.append(
            {
                "format": case.name,
                "elements": x.size,
                "seconds": {name: timing.seconds for name, timing in timings.items()},
                "spread": {name: timing.spread for name, timing in timings.items()},
            }
        )
        done(case.name)
    return rows


def check_same(case: Case, x: Floats) -> None:
    """Both have to do the same work: a RuntimeError where scales or more than a few codes differ."""
    own = planes.quantize(x, case.fmt.name, packed=case.packed)
    codes, scales = numpy_encoders.encode(case, x)
    same: NDArray[Any] = own.codes.reshape(-1) == codes.reshape(-1)
    if not np.array_equal(own.scales, scales) or 1 - same.mean() > _DIFFERENT:
        raise RuntimeError(f"{case.name}: NumPy and cbquant encode the same numbers to different codes or scales")


def against_numpy(rows: Iterable[Row]) -> list[Row]:
    """Section F: times as fast as NumPy with one thread."""
    one = threads_word(1)
    found: list[Row] = []
    for row in rows:
        base = row | {"group": one, "variant": "times NumPy", "judged": None}
        if _NUMPY in row["seconds"]:
            found.append(base | {"figure": row["seconds"][_NUMPY] / row["seconds"][one]})
        else:
            found.append(base | optional.missing("ml_dtypes"))
    return found


def speeds(rows: Iterable[Row]) -> list[Row]:
    """Section G: millions of elements a second."""
    return [
        row | {"group": DENSE, "variant": name, "figure": row["elements"] / seconds / 1e6, "judged": None}
        for row in rows
        for name, seconds in row["seconds"].items()
    ]
