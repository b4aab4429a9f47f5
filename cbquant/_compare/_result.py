"""What a comparison found: rows, which print as a table."""

from __future__ import annotations

import html
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cbquant.files._text import quoted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Titles of the columns, as `cells` gives them.
TITLES = ("tensor", "a", "b", "RMSE", "relative error", "cosine", "worst block at", "its error", "note")

#: Which of them are numbers.
NUMBERS = ("RMSE", "relative error", "cosine", "its error")

#: Rows shown at either end of a longer list.
_SHOWN = 30


class TensorComparison(NamedTuple):
    """A tensor of both sides; figures that do not apply are None.

    Attributes
    ----------
    name : str
        Empty for a tensor that was given alone.
    shape : tuple of int or None
        In elements; a's where the shapes differ.
    format_a, format_b : str or None
        A format's name, or that of a dtype which is no format; None where the side lacks the tensor.
    differing : int or None
        Elements that are not equal; two NaN are.
    rmse : float or None
        The root of the mean of the squares of b - a.
    relative_error : float or None
        ``norm(b - a) / norm(a)``, Frobenius norms; infinite where a is zero and b is not.
    cosine : float or None
        Of the angle between a and b as vectors; None where one of them is zero.
    worst_block : int or None
        The number of the block with the largest mean square error, counted over all rows: each row has
        ``ceil(K / block)`` of them. The first of several; None where no element differs.
    worst_at : tuple of int or None
        The index of its first element.
    worst_error : float or None
        Its RMSE, divided by the root mean square of all of a: what `relative_error` would be if every block were as
        bad as this one.
    nonfinite_a, nonfinite_b : int
        Elements that are NaN or infinite. Where one side has such an element it is left out of the figures.
    note : str
        What else there is to say, or why there are no figures.
    """

    name: str
    shape: tuple[int, ...] | None
    format_a: str | None
    format_b: str | None
    differing: int | None = None
    rmse: float | None = None
    relative_error: float | None = None
    cosine: float | None = None
    worst_block: int | None = None
    worst_at: tuple[int, ...] | None = None
    worst_error: float | None = None
    nonfinite_a: int = 0
    nonfinite_b: int = 0
    note: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether both sides are known to be equal, element by element."""
        return self.differing == 0

    def is_within(self, limit: float) -> bool:
        """Whether both sides are equal (two NaN are), or all elements finite and the relative error at most `limit`."""
        if self.is_equal:
            return True
        is_finite = not (self.nonfinite_a or self.nonfinite_b)
        return is_finite and self.relative_error is not None and self.relative_error <= limit


#: What rows can be sorted by, and the figure that is largest in the worst of them.
_BADNESS: dict[str, Callable[[TensorComparison], float | None]] = {
    "rmse": lambda row: row.rmse,
    "error": lambda row: row.relative_error,
    "cosine": lambda row: None if row.cosine is None else -row.cosine,
    "worst": lambda row: row.worst_error,
}
ORDERS = ("file", "name", *_BADNESS)


def _badness(row: TensorComparison, by: str) -> float:
    figure = _BADNESS[by](row)
    return -math.inf if figure is None else figure


def cells(row: TensorComparison) -> tuple[str, ...]:
    """The texts of a row, under `TITLES`."""
    at = "" if row.worst_at is None else str(row.worst_at)
    cosine = "" if row.cosine is None else f"{row.cosine:.6f}"
    formats = (row.format_a or "", row.format_b or "")
    errors = (_number(row.rmse), _number(row.relative_error))
    return (row.name, *formats, *errors, cosine, at, _number(row.worst_error), row.note)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


class Comparison(list[TensorComparison]):
    """A list of `TensorComparison` that prints as a table.

    Attributes
    ----------
    a, b : str
        The paths that were compared, "a" and "b" for what had none.
    block : int
        Elements of a block.
    """

    def __init__(self, rows: Iterable[TensorComparison] = (), *, a: str = "a", b: str = "b", block: int = 32) -> None:
        super().__init__(rows)
        self.a, self.b, self.block = a, b, block

    def ordered(self, by: str) -> Comparison:
        """The rows in another order, those without such a figure last.

        Parameters
        ----------
        by : "file", "name", "rmse", "error", "cosine" or "worst"
            As they are; by name; the worst first, by RMSE, relative error, cosine or the error of the worst block.

        Raises
        ------
        ValueError
            Another word.
        """
        if by not in ORDERS:
            raise ValueError(f"by: expected {', '.join(map(repr, ORDERS))}, got {by!r}")
        rows = list(self)
        if by == "name":
            rows.sort(key=lambda row: row.name)
        elif by != "file":
            rows.sort(key=lambda row: _badness(row, by), reverse=True)
        return Comparison(rows, a=self.a, b=self.b, block=self.block)

    def summary(self) -> str:
        """In a sentence: how many tensors differ, and the largest relative error.

        >>> import cbquant, numpy as np
        >>> cbquant.compare({"x": np.ones(4), "y": np.ones(4)}, {"x": np.ones(4), "y": np.full(4, 2.0)}).summary()
        "2 tensors: 1 equal, 1 measured; largest relative error 1 in 'y'"
        """
        equal = sum(row.is_equal for row in self)
        measured = [row for row in self if not row.is_equal and row.relative_error is not None]
        rest = len(self) - equal - len(measured)
        text = f"{len(self):,} tensors: {equal:,} equal, {len(measured):,} measured"
        if rest:
            text += f", {rest:,} not"
        if measured:
            worst = max(measured, key=lambda row: row.relative_error or 0.0)
            text += f"; largest relative error {worst.relative_error:.4g}"
            text += f" in {quoted(worst.name)}" if worst.name else ""
        nonfinite = sum(row.nonfinite_a + row.nonfinite_b > 0 for row in self)
        return f"{text}; NaN or infinite elements in {nonfinite:,}" if nonfinite else text

    def to_dict(self) -> dict[str, Any]:
        """What `to_json` writes, as a dict: ``a``, ``b``, ``block`` and a list of ``tensors``."""
        tensors = [{**row._asdict(), "is_equal": row.is_equal} for row in self]
        return {"a": self.a, "b": self.b, "block": self.block, "tensors": tensors}

    def to_json(self) -> str:
        """JSON; an infinite error is null, as are figures that do not apply."""

        def plain(value: Any) -> Any:
            return None if isinstance(value, float) and not math.isfinite(value) else value

        found = self.to_dict()
        found["tensors"] = [{key: plain(value) for key, value in row.items()} for row in found["tensors"]]
        return json.dumps(found, indent=2, allow_nan=False)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """A picture: the relative error of each tensor that differs, and that of its worst block.

        Parameters
        ----------
        path : str or os.PathLike, optional
            Where to write it; the suffix says in which of matplotlib's formats.

        Returns
        -------
        matplotlib.figure.Figure
            A notebook shows it.

        Raises
        ------
        ImportError
            matplotlib is not installed.
        """
        from cbquant._compare._plot import draw

        return draw(self, path)

    def _table(self) -> list[tuple[str, ...]]:
        """The rows to print; of a long list its two ends, with a row of dots between them."""
        rows = [cells(row._replace(name=quoted(row.name)[1:-1], note=quoted(row.note)[1:-1])) for row in self]
        if len(rows) > 2 * _SHOWN:
            rows[_SHOWN:-_SHOWN] = [("...",) * len(TITLES)]
        return rows

    def _title(self) -> str:
        return f"{self.b} against {self.a}: {self.summary()}"

    def __repr__(self) -> str:
        rows = [TITLES, *self._table()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join([self._title(), *(_line(row, widths) for row in rows)])

    def _repr_html_(self) -> str:
        def row(texts: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts) + "</tr>"

        body = "".join(row(texts, "td") for texts in self._table())
        caption = html.escape(self._title())
        return f"<table><caption>{caption}</caption><thead>{row(TITLES, 'th')}</thead><tbody>{body}</tbody></table>"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    aligned = (
        text.rjust(width) if title in NUMBERS else text.ljust(width)
        for text, width, title in zip(row, widths, TITLES, strict=True)
    )
    return "  ".join(aligned).rstrip()
