"""What the pages of documentation of all benchmarks share: Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.report import Report, Row, held
from benchmarks.tables import Table

MEANING_OF_BOLD = "bold: misses its target"


def line(cells: Iterable[str]) -> str:
    """A line of a table.

    >>> line(["q4_0", "0.9"])
    '| q4_0 | 0.9 |'
    """
    return f"| {' | '.join(cells)} |"


def emphasized(text: str, row: Row) -> str:
    """The text, bold where the row misses its target."""
    return f"**{text}**" if held([row]) == "NO" else text


def table_lines(table: Table) -> list[str]:
    """A table, without its title and its note."""
    ruler = ("--:" if column.right else "---" for column in table.columns)
    rows = table.rows + ([table.total] if table.total else [])
    return [line(column.title for column in table.columns), line(ruler), *map(line, rows)]


def target_lines(report: Report) -> Iterable[str]:
    """How many targets held, and which did not."""
    summary = report["targets"]
    yield f"{summary['held']} of {summary['judged']} targets held."
    if summary["misses"]:
        yield from ("The others:", "", *(f"- {miss}" for miss in summary["misses"]))
