"""Lists that print as tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


class TableList(list[T]):
    """A list that prints as a table, in a terminal and in a notebook. A subclass says what stands in a row."""

    head: tuple[str, ...]

    def cells(self, item: T) -> tuple[str, ...]:
        raise NotImplementedError(f"{type(self).__name__} does not implement cells()")

    def _rows(self) -> Iterable[tuple[str, ...]]:
        yield self.head
        yield from map(self.cells, self)

    def __repr__(self) -> str:
        rows = list(self._rows())
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)

    def _repr_html_(self) -> str:
        from html import escape

        head, *body = self._rows()
        cells = "".join(f"<th>{escape(c)}</th>" for c in head)
        lines = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in body)
        return f"<table><tr>{cells}</tr>{lines}</table>"
