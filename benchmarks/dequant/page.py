"""A report as a page of documentation in Markdown: one table, a row for each format."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from benchmarks.page import MEANING_OF_BOLD, emphasized, line, target_lines
from benchmarks.report import Report, Row, by_format, variants
from benchmarks.tables import header
from benchmarks.words import size_word

_INTRODUCTION = """\
# Performance

How fast cbquant decodes on one machine. Every figure is a ratio to something measured in the same run, in turns;
[benchmarks](../benchmarks/README.md) says how, and `make bench` measures yours.
"""
_MEANINGS = {
    "A": "float32 into {size} of memory used before, as a part of the fastest fill of that memory",
    "E": "16-bit floats into {size} of memory used before, likewise",
    "B": "float32 into {size} in cache, one thread, as a part of the fastest fill of that cache",
    "D": "float32 into a new array of {size}, in times of `numpy.empty` and `fill`: less is better",
    "C": "how many times as fast as another decoder, {size} in cache, one thread each",
}
# What stands before the variant in the title of a column.
_WORDS = {"A": "memory", "E": "memory", "B": "cache", "D": "new array", "C": "times"}


class _Column(NamedTuple):
    section: str
    variant: str
    title: str


def write_page(report: Report) -> str:
    """The text of the page."""
    measured = {letter: rows for letter in _MEANINGS if (rows := report["sections"].get(letter))}
    columns = [column for letter, rows in measured.items() for column in _columns(letter, rows)]
    groups = {letter: by_format(rows) for letter, rows in measured.items()}
    lines = [_INTRODUCTION, *(f"- {key}: {text}" for key, text in header(report))]
    lines += ["", "The columns:", "", *_explain(columns, measured), ""]
    lines += [line(["format", *(column.title for column in columns)]), line(["---", *("--:" for _ in columns)])]
    for name in report["plan"]["formats"]:
        cells = (_cell(groups[column.section].get(name, {}).get(column.variant)) for column in columns)
        lines.append(line([name, *cells]))
    lines.append(line(["geometric mean", *(_mean(column, measured[column.section]) for column in columns)]))
    return "\n".join([*lines, "", *target_lines(report)]) + "\n"


def _smallest(rows: Iterable[Row]) -> int:
    return min(int(row["output_bytes"]) for row in rows if row["format"])


def _columns(letter: str, rows: list[Row]) -> Iterable[_Column]:
    """Of the comparisons with other decoders, only those in cache."""
    in_cache = {row["variant"] for row in rows if row.get("output_bytes") == _smallest(rows)}
    for variant in variants(rows):
        if variant in in_cache:
            yield _Column(letter, variant, f"{_WORDS[letter]}, {variant.partition(', ')[0]}")


def _explain(columns: list[_Column], measured: dict[str, list[Row]]) -> Iterable[str]:
    for letter, rows in measured.items():
        titles = "; ".join(column.title for column in columns if column.section == letter)
        yield f"- *{titles}*: {_MEANINGS[letter].format(size=size_word(_smallest(rows)))}"
    yield f"- {MEANING_OF_BOLD}"


def _cell(row: Row | None) -> str:
    """The figure; bold where it misses its target."""
    if row is None:
        return ""
    return emphasized(f"{row['figure']:.{1 if 'peer' in row else 2}f}", row)


def _mean(column: _Column, rows: list[Row]) -> str:
    means = {row["variant"]: row for row in rows if row["format"] is None}
    return _cell(means.get(column.variant))
