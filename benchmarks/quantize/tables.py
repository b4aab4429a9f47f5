"""A report as tables of text: one for each group of a section, a row for each format."""

from __future__ import annotations

from benchmarks.groups import Mark, Section, group_tables, plain
from benchmarks.report import Report
from benchmarks.tables import Table

SECTIONS = {
    "A": Section("Against ggml", "Times as fast as ggml's encoder on the same rows, one thread each.", 1),
    "B": Section("Speed", "Millions of elements a second, one thread.", 1),
    "C": Section("More threads, dense", "Times as fast as one thread."),
    "D": Section("Tables", "Milliseconds that a process's first call on one block takes longer than its second.", 1),
}


def all_tables(report: Report, mark: Mark = plain) -> list[Table]:
    """The tables of all sections."""
    return group_tables(report, SECTIONS, mark)
