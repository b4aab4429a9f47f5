"""The sections of a report: what was measured, as ratios, and what `targets` makes of them.

A row of a section has a group, such as "q8, 2 threads, 4096x4096", which has a table of its own.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable

from benchmarks.matmul import targets
from benchmarks.report import Row, judge
from benchmarks.words import threads_word

#: The variant of a mean over all numbers of rows.
ALL = "all M"


def sections(products: list[Row], level: str) -> dict[str, list[Row]]:
    """All sections.

    Parameters
    ----------
    products : list of rows
        What `products.Run` has measured.
    level : str
        The instructions in use, as `cbquant.info` names them.
    """
    return {
        "A": [_speed(row, level) for row in products],
        "B": _against_ggml(products),
        "C": _against_dense(products),
        "D": [_of_bandwidth(row) for row in products if row["m"] == 1 and row["limits"]["read"]],
        "E": _of_one_thread(products),
        "F": [found for row in products for found in _of_peak(row, level)],
        "G": _steps(products),
    }


def _rate(row: Row) -> float:
    """G operations a second."""
    return float(row["operations"] / row["seconds"] / 1e9)


def _group(row: Row) -> str:
    return f"{row['mode']}, {threads_word(row['threads'])}, {row['shape']}"


def _by_rows(row: Row, group: str, figure: float, target: float | None) -> Row:
    """A row of a section with a column for each number of rows of x."""
    judged = judge(figure, ">=", target)
    return {"format": row["format"], "group": group, "variant": f"M={row['m']}", "figure": figure, "judged": judged}


def _by_mode(row: Row, figure: float, target: float | None) -> Row:
    """A row of a section with a column for each precision and number of threads."""
    variant = f"{row['mode']}, {threads_word(row['threads'])}"
    judged = judge(figure, ">=", target)
    return {"format": row["format"], "group": row["shape"], "variant": variant, "figure": figure, "judged": judged}


def _speed(row: Row, level: str) -> Row:
    target = targets.known(row["format"], row["m"], row["mode"], row["threads"], level)
    return row | _by_rows(row, _group(row), _rate(row), target)


def _against_ggml(products: list[Row]) -> list[Row]:
    """Against the best of the arrangements that count, and against each of the others."""
    rows = []
    for row in products:
        seconds = row["peer_seconds"].get("ggml", {})
        counted = {name: s for name, s in seconds.items() if name.endswith(targets.ARRANGEMENTS)}
        if counted:
            best = min(counted, key=lambda name: counted[name])
            target = targets.against_ggml(row["format"], row["m"], row["mode"], row["threads"])
            rows.append(_by_rows(row, _group(row), counted[best] / row["seconds"], target) | {"peer": best})
        for name in seconds.keys() - counted.keys():
            group = f"{_group(row)}, against {name}"
            rows.append(_by_rows(row, group, seconds[name] / row["seconds"], None) | {"peer": name})
    means = _means(rows)
    for group in dict.fromkeys(_group(row) for row in products):
        figures = [row["figure"] for row in rows if row["group"] == group]
        if figures:
            mode, count = next((row["mode"], row["threads"]) for row in products if _group(row) == group)
            means.append(_mean(group, ALL, figures, targets.mean_against_ggml(mode, count)))
    return rows + means


def _against_dense(products: list[Row]) -> list[Row]:
    """Against products with decoded weights."""
    rows = []
    for row in products:
        for family in ("numpy", "torch"):
            for name, seconds in row["peer_seconds"].get(family, {}).items():
                target = targets.against_sgemm(row["m"], row["mode"], row["threads"]) if family == "numpy" else None
                group = f"{_group(row)}, against {name}"
                rows.append(_by_rows(row, group, seconds / row["seconds"], target) | {"peer": name})
    return rows + _means(rows)


def _means(rows: list[Row]) -> list[Row]:
    """The geometric mean over formats of each column."""
    columns: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        columns.setdefault((row["group"], row["variant"]), []).append(row["figure"])
    return [_mean(group, variant, figures, None) for (group, variant), figures in columns.items()]


def _mean(group: str, variant: str, figures: list[float], target: float | None) -> Row:
    mean = statistics.geometric_mean(figures)
    judged = judge(mean, ">=", target)
    named = {"format": None, "formats": len(figures), "group": group, "variant": variant}
    return named | {"figure": mean, "judged": judged}


def _of_bandwidth(row: Row) -> Row:
    """Judged where the weights come from memory."""
    speed = row["stored_bytes"] / row["seconds"]
    target = targets.of_bandwidth(row["format"], row["mode"], row["threads"]) if row["weights_from_memory"] else None
    return _by_mode(row, speed / max(row["limits"]["read"].values()), target)


def _of_one_thread(products: list[Row]) -> list[Row]:
    alone = {
        (row["shape"], row["format"], row["mode"]): row for row in products if row["m"] == 1 and row["threads"] == 1
    }
    rows = []
    for row in products:
        one = alone.get((row["shape"], row["format"], row["mode"]))
        if row["m"] == 1 and row["threads"] > 1 and one:
            target = targets.of_one_thread(row["mode"], row["threads"])
            rows.append(_by_mode(row, one["seconds"] / row["seconds"], target))
    return rows


def _of_peak(row: Row, level: str) -> Iterable[Row]:
    """Integers of integers, floats of floats."""
    limits = {"q8": row["limits"]["integers"], "f32": row["limits"]["floats"]}.get(row["mode"])
    if limits:
        target = targets.of_peak(row["format"], row["mode"], row["threads"], level)
        yield _by_rows(row, _group(row), 1e9 * _rate(row) / max(limits.values()), target)


def _steps(products: list[Row]) -> list[Row]:
    """The worst step from one number of rows to the next larger one."""
    series: dict[tuple[str, str], list[Row]] = {}
    for row in products:
        series.setdefault((row["format"], _group(row)), []).append(row)
    rows = []
    for own in series.values():
        ordered = sorted(own, key=lambda row: int(row["m"]))
        steps = [(_rate(after) / _rate(before), after) for before, after in itertools.pairwise(ordered)]
        if steps:
            figure, after = min(steps, key=lambda step: step[0])
            rows.append(_by_mode(after, figure, targets.STEP) | {"at": f"M={after['m']}"})
    return rows
