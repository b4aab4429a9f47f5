"""A report as a page of documentation in Markdown."""

from __future__ import annotations

from benchmarks.deepseek.tables import all_tables
from benchmarks.page import MEANING_OF_BOLD, emphasized, table_lines, target_lines
from benchmarks.report import Report
from benchmarks.tables import header

_INTRODUCTION = """\
# Speed of the operators of DeepSeek-V4

How fast `cbquant.deepseek` is on one machine, next to its memory, NumPy and torch, measured in turns;
[benchmarks](../benchmarks/README.md) says how, and `python -m benchmarks.deepseek` measures yours. A prompt has
{tokens} tokens of {columns} elements.
"""


def write_page(report: Report) -> str:
    """The text of the page."""
    introduction = _INTRODUCTION.format(**report["plan"])
    lines = [introduction, *(f"- {key}: {text}" for key, text in header(report)), f"- {MEANING_OF_BOLD}", ""]
    lines += target_lines(report)
    for table in all_tables(report, emphasized):
        lines += ["", f"## {table.title}", "", table.note, "", *table_lines(table)]
    return "\n".join(lines) + "\n"
