"""A report as a page of documentation in Markdown."""

from __future__ import annotations

from benchmarks.page import MEANING_OF_BOLD, emphasized, table_lines, target_lines
from benchmarks.quantize.tables import all_tables
from benchmarks.report import Report
from benchmarks.tables import header

_INTRODUCTION = """\
# Speed of encoders

How fast cbquant encodes on one machine, into the same bytes as ggml, which is measured in turns with it;
[benchmarks](../benchmarks/README.md) says how, and `python -m benchmarks.quantize` measures yours. Rows of {k} numbers
are *dense* (normally distributed), *sparse* (the same with 80 % zeros), *constant*, *integers* (from -3 to 3), or have
a *spike* each (one number a thousand times as large as the others).
"""


def write_page(report: Report) -> str:
    """The text of the page."""
    introduction = _INTRODUCTION.format(k=report["plan"]["k"])
    lines = [introduction, *(f"- {key}: {text}" for key, text in header(report)), f"- {MEANING_OF_BOLD}", ""]
    lines += target_lines(report)
    for table in all_tables(report, emphasized):
        lines += ["", f"## {table.title}", "", table.note, "", *table_lines(table)]
    return "\n".join(lines) + "\n"
