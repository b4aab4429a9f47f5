"""What commands print: tables, JSON, notes. A terminal gets a table from rich where rich is installed."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

import numpy as np


class Column(NamedTuple):
    """A column of a table: its title, whether its cells stand at the right edge (numbers), where they are cut.

    Every row is as wide as the longest cell, and a name in a file may have any length.
    """

    title: str
    right: bool = False
    width: int = 80


def printable(text: str, stream: TextIO | None = None) -> str:
    """`text` with escapes for what would break a line or a terminal, or what `stream` (stdout) cannot encode.

    Names and metadata are a file's word: a line break or an escape sequence in them must not act.

    >>> printable("Grüße\\n")
    'Grüße\\\\n'
    """
    encoding = getattr(stream or sys.stdout, "encoding", None) or "utf-8"
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return escaped.encode(encoding, "backslashreplace").decode(encoding)


def note(text: str) -> None:
    """Tell the user something on stderr."""
    print(f"cbquant: {printable(text, sys.stderr)}", file=sys.stderr)


def print_json(value: Any) -> None:
    """Print `value` as JSON: arrays as lists, NaN and infinities as null, paths as strings."""
    print(json.dumps(_plain(value), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, bool, type(None))) else str(value)


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], total: Sequence[str] | None = None) -> None:
    """Print rows of text under the columns' titles, and `total` below a line; cells too long end in an ellipsis.

    >>> columns = [Column("name"), Column("bytes", right=True)]
    >>> print_table(columns, [["a", "18"], ["long", "5"]], ["sum", "23"])
    name  bytes
    ----  -----
    a        18
    long      5
    ----  -----
    sum      23
    """
    body = [_cells(columns, row) for row in rows]
    last = _cells(columns, total) if total else None
    if not (is_terminal(sys.stdout) and _print_rich(columns, body, last)):
        _print_plain(columns, body, last)


def _cells(columns: Sequence[Column], row: Sequence[str]) -> list[str]:
    return [_cut(cell, column.width) for cell, column in zip(row, columns, strict=True)]


def _cut(text: str, width: int) -> str:
    shown = printable(text[: width + 1])  # escapes only lengthen it: what does not fit still does not
    if len(shown) <= width:
        return shown
    ellipsis = "…" if printable("…") == "…" else "..."
    return shown[: width - len(ellipsis)] + ellipsis


def is_terminal(stream: TextIO) -> bool:
    """Whether a person is likely to be reading `stream` as it is written."""
    return not stream.closed and stream.isatty()


def _print_plain(columns: Sequence[Column], rows: list[list[str]], total: list[str] | None) -> None:
    titles = [column.title for column in columns]
    widths = [max(map(len, cells)) for cells in zip(titles, *rows, *([total] if total else []), strict=True)]
    ruler = ["-" * width for width in widths]
    for row in [titles, ruler, *rows, *([ruler, total] if total else [])]:
        cells = (
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        )
        print("  ".join(cells).rstrip())


def _print_rich(columns: Sequence[Column], rows: list[list[str]], total: list[str] | None) -> bool:
    """The same through rich; False where it is not installed."""
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    table = Table(box=box.SIMPLE_HEAD, show_footer=total is not None, pad_edge=False)
    for column, footer in zip(columns, total or [""] * len(columns), strict=True):
        # Folded: a narrow terminal breaks a cell, it does not hide the end of it.
        align = "right" if column.right else "left"
        table.add_column(column.title, Text(footer), justify=align, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*map(Text, row))  # as Text, brackets in a name are no markup
    Console(file=sys.stdout).print(table)
    return True
