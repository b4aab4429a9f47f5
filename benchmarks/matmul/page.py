"""A report as a page of documentation in Markdown."""

from __future__ import annotations

from benchmarks.matmul.tables import all_tables
from benchmarks.page import MEANING_OF_BOLD, emphasized, table_lines, target_lines
from benchmarks.report import Report
from benchmarks.tables import header

_INTRODUCTION = """\
# Speed of products

How fast cbquant multiplies with compressed weights on one machine. Every figure is measured in turns with what it is
compared with; [benchmarks](../benchmarks/README.md) says how, and `python -m benchmarks.matmul` measures yours.
"""


def write_page(report: Report) -> str:
    """The text of the page."""
    lines = [_INTRODUCTION, *(f"- {key}: {text}" for key, text in header(report)), f"- {MEANING_OF_BOLD}", ""]
    lines += target_lines(report)
    for table in all_tables(report, emphasized):
        lines += ["", f"## {table.title}", "", table.note, "", *table_lines(table)]
    return "\n".join(lines) + "\n"
