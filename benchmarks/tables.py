"""What the tables of all benchmarks share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from benchmarks.report import Report
from benchmarks.words import size_word, threads_word
from cbquant.cli.output import Column

FORMAT, HELD = Column("format"), Column("held")


class Table(NamedTuple):
    """A table, what it shows, and how to read it."""

    title: str
    note: str
    columns: list[Column]
    rows: list[list[str]]
    total: list[str] | None = None


def numbers(*titles: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(title, right=True) for title in titles]


def header(report: Report) -> Iterable[tuple[str, str]]:
    """The machine and the run, as pairs of words."""
    machine, plan = report["machine"], report["plan"]
    yield "processor", f"{machine['cpu']}, {threads_word(machine['cores']).replace('thread', 'core')}"
    yield "instructions", f"{machine['isa']} (kernels: {machine['kernels']})"
    yield "last cache", size_word(machine["last_cache_bytes"]) if machine["last_cache_bytes"] else "unknown"
    yield "system", f"{machine['system']}, transparent huge pages: {machine['huge_pages']}"
    versions = {key: machine[key] for key in ("cbquant", "python", "numpy")} | report["peers"]
    yield "versions", ", ".join(f"{name} {version}" for name, version in versions.items())
    yield "date", machine["date"]
    yield "figures", f"medians of {plan['rounds']} rounds, in each of which everything compared has its turn"
    for note in report["notes"]:
        yield "note", note
