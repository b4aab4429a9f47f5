"""Tables of sections whose rows have groups: one table a group, a row for each format, a column for each variant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from benchmarks.report import Report, Row, by_format, held, promised, variants
from benchmarks.tables import FORMAT, HELD, Table, numbers
from cbquant.cli.output import Column

#: Given the text of a cell and its row, the text to show.
Mark = Callable[[str, Row], str]


class Section(NamedTuple):
    """What a section shows, how to read it, and how many digits its figures have behind the point."""

    title: str
    note: str
    digits: int = 2


def plain(text: str, row: Row) -> str:
    """The text of a cell as it is."""
    return text


def group_tables(
    report: Report, sections: Mapping[str, Section], mark: Mark = plain, of: Column = FORMAT
) -> list[Table]:
    """The tables of all sections, in the order of the report; `of` is the title of what the rows are of."""
    tables = []
    for letter, rows in report["sections"].items():
        for group in dict.fromkeys(row["group"] for row in rows):
            own = [row for row in rows if row["group"] == group]
            tables.append(_table(f"{letter}. {sections[letter].title}: {group}", sections[letter], own, mark, of))
    return tables


def _table(title: str, section: Section, rows: list[Row], mark: Mark, of: Column) -> Table:
    order, promises = variants(rows), promised(rows)

    def line(name: str, own: Mapping[str, Row]) -> list[str]:
        cells = [_cell(own.get(variant), section.digits, mark) for variant in order]
        return [name, *cells, held(own.values())] if promises else [name, *cells]

    columns = [of, *numbers(*order), *([HELD] if promises else [])]
    means = {row["variant"]: row for row in rows if row["format"] is None}
    note = f"{section.note}\nTarget: {promises}." if promises else section.note
    body = [line(name, own) for name, own in by_format(rows).items()]
    return Table(title, note, columns, body, line("geometric mean", means) if means else None)


def _cell(row: Row | None, digits: int, mark: Mark) -> str:
    """A row without a figure says in a word why: "absent"."""
    if row is None:
        return ""
    return str(row["absent"]) if row["figure"] is None else mark(f"{row['figure']:.{digits}f}", row)
