"""A report as tables of text: one for each group of a section, a row for each format."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.report import Report, Row, by_format, held, promised, variants
from benchmarks.tables import FORMAT, HELD, Table, numbers
from cbquant.cli.output import Column

#: What a section shows, and how to read it.
SECTIONS = {
    "A": ("Speed", "G operations a second: 2 M N K, a multiply-add being two."),
    "B": ("Against ggml", "Times as fast as the best of ggml's products, on the same blocks with as many threads."),
    "C": ("Against decoded weights", "Times as fast as a product with weights that are decoded already."),
    "D": (
        "Bandwidth, one row",
        "Bytes of weights a second, of what reading memory alone reaches with as many threads.",
    ),
    "E": ("More threads, one row", "Times as fast as one thread."),
    "F": (
        "Of the peak",
        "Operations a second, of what the instructions in use reach on registers: q8 of 8-bit integers,\n"
        "f32 of floats.",
    ),
    "G": (
        "Steps",
        "The smallest part of its speed that a product keeps from one number of rows to the next larger one.",
    ),
}
_FEW_DIGITS = {"A"}


def plain(text: str, row: Row) -> str:
    """The text of a cell as it is."""
    return text


def all_tables(report: Report, mark: Callable[[str, Row], str] = plain) -> list[Table]:
    """The tables of all sections.

    Parameters
    ----------
    report : Report
    mark : callable
        Given the text of a cell and its row, the text to show.
    """
    tables = []
    for letter, rows in report["sections"].items():
        for group in dict.fromkeys(row["group"] for row in rows):
            tables.append(_table(letter, group, [row for row in rows if row["group"] == group], mark))
    return tables


def _table(letter: str, group: str, rows: list[Row], mark: Callable[[str, Row], str]) -> Table:
    title, note = SECTIONS[letter]
    order = variants(rows)

    def cells(own: Mapping[str, Row]) -> list[str]:
        found = (own.get(variant) for variant in order)
        return [mark(_digits(letter, row["figure"]), row) if row else "" for row in found]

    promises = promised(rows)
    judged = [HELD] if promises else []
    body = [[name, *cells(own), *_held(own, judged)] for name, own in by_format(rows).items()]
    means = {row["variant"]: row for row in rows if row["format"] is None}
    total = ["geometric mean", *cells(means), *_held(means, judged)] if means else None
    text = f"{note}\nTarget: {promises}." if promises else note
    return Table(f"{letter}. {title}: {group}", text, [FORMAT, *numbers(*order), *judged], body, total)


def _held(own: Mapping[str, Row], judged: list[Column]) -> list[str]:
    return [held(own.values())] if judged else []


def _digits(letter: str, figure: float) -> str:
    """
    >>> _digits("A", 123.4), _digits("A", 12.34), _digits("B", 1.234)
    ('123', '12.3', '1.23')
    """
    if letter in _FEW_DIGITS:
        return f"{figure:.0f}" if figure >= 100 else f"{figure:.1f}"
    return f"{figure:.2f}"
