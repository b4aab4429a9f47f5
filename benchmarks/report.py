"""What the views of a report share. A report is what a benchmark's JSON file holds."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: A result. "format" and "variant" (such as "2 threads") say of what, and "group" where there is one; "figure" is the
#: ratio that counts, "judged" what `judge` makes of it; the other keys are how it came about. Where a peer is missing
#: "figure" is None, and "absent" says so. JSON can hold it.
Row = dict[str, Any]
Report = dict[str, Any]

_SENSES = {">=": operator.ge, "<=": operator.le}


def judge(value: float, sense: str, target: float | None) -> dict[str, Any] | None:
    """A verdict as rows hold it; None where nothing was promised.

    >>> judge(0.93, ">=", 0.9)
    {'value': 0.93, 'sense': '>=', 'target': 0.9, 'held': True}
    """
    if target is None:
        return None
    return {"value": value, "sense": sense, "target": target, "held": _SENSES[sense](value, target)}


def by_format(rows: Iterable[Row]) -> dict[str, dict[str, Row]]:
    """The rows of each format by variant, in the order of the report, without means, which have no format."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["format"] is not None:
            found.setdefault(row["format"], {})[row["variant"]] = row
    return found


def variants(rows: Iterable[Row]) -> list[str]:
    """The variants of a section, those that the most formats have first."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["variant"]] = counts.get(row["variant"], 0) + 1
    return sorted(counts, key=lambda variant: -counts[variant])


def promised(rows: Iterable[Row]) -> str:
    """The targets of rows, in words.

    >>> promised([{"judged": {"sense": ">=", "target": 0.9}}, {"judged": None}])
    '>= 0.9'
    """
    judged = [row["judged"] for row in rows if row["judged"]]
    return ", ".join(dict.fromkeys(f"{verdict['sense']} {verdict['target']:g}" for verdict in judged))


def held(rows: Iterable[Row]) -> str:
    """Whether every target of these rows held: "yes", "NO", or nothing where there is none.

    >>> held([{"judged": {"held": True}}, {"judged": None}]), held([{"judged": None}])
    ('yes', '')
    """
    verdicts = [row["judged"]["held"] for row in rows if row["judged"]]
    if not verdicts:
        return ""
    return "yes" if all(verdicts) else "NO"


def summarize(sections: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """How many targets held, and the ones that did not, in words.

    >>> verdict = {"value": 0.8, "sense": ">=", "target": 0.9, "held": False}
    >>> summarize({"A": [{"format": "q4_0", "variant": "2 threads", "judged": verdict}]})
    {'held': 0, 'judged': 1, 'misses': ['A: q4_0, 2 threads: 0.80, target >= 0.9']}
    """
    judged = [(letter, row) for letter, rows in sections.items() for row in rows if row["judged"]]
    misses = [f"{letter}: {_describe(row)}" for letter, row in judged if not row["judged"]["held"]]
    return {"held": len(judged) - len(misses), "judged": len(judged), "misses": misses}


def _describe(row: Row) -> str:
    what = row["format"] or f"geometric mean of {row['formats']} formats"
    words = [what, row["group"], row["variant"]] if "group" in row else [what, row["variant"]]
    verdict = row["judged"]
    value, target = f"{verdict['value']:.2f}", f"{verdict['target']:g}"
    return f"{', '.join(words)}: {value}, target {verdict['sense']} {target}"
