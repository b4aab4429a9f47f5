"""A report as a page of documentation in Markdown."""

from __future__ import annotations

from benchmarks.page import MEANING_OF_BOLD, emphasized, table_lines, target_lines
from benchmarks.planes.tables import all_tables
from benchmarks.report import Report
from benchmarks.tables import header

_INTRODUCTION = """\
# Speed of codecs and planes

How fast cbquant's codecs and planes are on one machine, next to its memory and to other libraries, which are measured
in turns with them; [benchmarks](../benchmarks/README.md) says how, and `python -m benchmarks.planes` measures yours. A
matrix is {shape} unless a table says otherwise; codecs have {elements:,} elements, encoders {rows} rows. The matrix of
{large} has {large_rounds} rounds, products have {product_rounds}. torch and bitsandbytes are optional
(`pip install torch bitsandbytes`).
"""


def write_page(report: Report) -> str:
    """The text of the page."""
    introduction = _INTRODUCTION.format(**report["plan"])
    lines = [introduction, *(f"- {key}: {text}" for key, text in header(report)), f"- {MEANING_OF_BOLD}", ""]
    lines += target_lines(report)
    for table in all_tables(report, emphasized):
        lines += ["", f"## {table.title}", "", table.note, "", *table_lines(table)]
    return "\n".join(lines) + "\n"
