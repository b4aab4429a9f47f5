"""A comparison as a picture: a line for each tensor that differs."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

from cbquant._compare._result import Comparison, TensorComparison
from cbquant.files._path import naming
from cbquant.files._text import quoted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WHOLE, _WORST = "#1f5f99", "#c1440e"
#: Inches: of a line, and at most (matplotlib draws no more than 2^16 dots).
_LINE, _HIGHEST = 0.2, 400.0
_SHOWN_NAME = 50


def figure_class() -> type[Figure]:
    """matplotlib's figure; an ImportError that names the extra."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError('plot draws with matplotlib: pip install "cbquant[plot]"') from None
    return Figure


def draw(comparison: Comparison, path: str | os.PathLike[str] | None) -> Figure:
    """Draw the relative errors, and write the picture where `path` says."""
    rows = [row for row in comparison if _is_drawn(row)]
    height = min(2.2 + _LINE * len(rows), _HIGHEST)
    figure = figure_class()(figsize=(9, height), layout="constrained")
    axis = figure.add_subplot()
    if rows:
        _draw_rows(axis, rows, comparison.block)
    else:
        axis.set_axis_off()
        axis.text(0.5, 0.5, "nothing to draw: no tensor differs", ha="center", va="center")
    left = len(comparison) - len(rows)
    title = f"{_short(comparison.b)} against {_short(comparison.a)}"
    figure.suptitle(f"{title}\n{left:,} equal or not compared" if left else title, parse_math=False)
    if path is not None:
        with naming(path):
            figure.savefig(path, dpi=120)
    return figure


def _is_drawn(row: TensorComparison) -> bool:
    """Whether there are errors that a logarithmic axis can show."""
    return bool(row.relative_error and row.worst_error) and math.isfinite(row.relative_error or math.inf)


def _draw_rows(axis: Any, rows: list[TensorComparison], block: int) -> None:
    places = range(len(rows))
    whole, worst = [row.relative_error for row in rows], [row.worst_error for row in rows]
    axis.hlines(places, whole, worst, color="#bbbbbb", linewidth=1)
    axis.plot(whole, places, "o", color=_WHOLE, markersize=4, label="whole tensor")
    axis.plot(worst, places, "|", color=_WORST, markersize=8, label=f"worst block of {block}")
    axis.set_xscale("log")
    names = [f"{_short(row.name)}  {row.format_a} > {row.format_b}" for row in rows]
    axis.set_yticks(places, names, fontsize="small", parse_math=False)
    axis.set_ylim(len(rows) - 0.4, -0.6)  # the first tensor on top
    axis.set_xlabel("error, as a part of the tensor's root mean square")
    axis.grid(axis="x", alpha=0.3)
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")


def _short(text: str) -> str:
    """A name without what a font lacks, and the end of a long one."""
    shown = quoted(text)[1:-1].encode("ascii", "backslashreplace").decode()
    return shown if len(shown) <= _SHOWN_NAME else f"...{shown[3 - _SHOWN_NAME :]}"
