"""A report as tables of text: one for each group of a section, a row for each operator."""

from __future__ import annotations

from benchmarks.groups import Mark, Section, group_tables, plain
from benchmarks.report import Report
from benchmarks.tables import Table
from cbquant.cli.output import Column

SECTIONS = {
    "A": Section(
        "Next to memory",
        "Parts of the speed of memory: the time to copy what is written and to read the rest, by the fastest way "
        "known here, over the operator's.",
    ),
    "B": Section("Next to NumPy", "Times the speed of NumPy in float32.", 1),
    "C": Section("Next to torch", "Times the speed of torch (eager) in float32, with as many threads.", 1),
    "D": Section(
        "Next to the machine's limits",
        "Times the speed that was promised: 0.8 of reading memory or 0.6 of float32 multiply-adds, whichever is less.",
    ),
    "E": Section("Top-k", "Times the speed of others with one thread, in float32.", 1),
}


def all_tables(report: Report, mark: Mark = plain) -> list[Table]:
    """The tables of all sections."""
    return group_tables(report, SECTIONS, mark, Column("operator"))
