"""A report as a picture: bars for each format."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.dequant import targets
from benchmarks.report import Report, Row, by_format, variants
from benchmarks.words import size_word

_TARGET = "#c1440e"


class _Panel(NamedTuple):
    section: str
    title: str
    unit: str
    variants: list[str]


def draw(report: Report, path: Path) -> bool:
    """Draw sections A, B and C into a PNG file; False where none of them was measured.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = _panels(report["sections"])
    if not panels:
        return False
    names = report["plan"]["formats"]
    size = (4.8 * len(panels) + 1.2, 0.36 * len(names) + 2.2)
    figure, axes = plt.subplots(1, len(panels), figsize=size, sharey=True, squeeze=False, layout="constrained")
    for axis, panel in zip(axes[0], panels, strict=True):
        _draw_panel(axis, panel, names, by_format(report["sections"][panel.section]))
    axes[0][0].invert_yaxis()  # the first format on top
    machine = report["machine"]
    figure.suptitle(f"Decoding speed of cbquant {machine['cbquant']}\n{machine['cpu']}, {machine['isa']}")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return True


def _panels(sections: dict[str, list[Row]]) -> list[_Panel]:
    panels = []
    if rows := sections.get("A"):
        title = f"float32 into {size_word(rows[0]['output_bytes'])} of memory"
        panels.append(_Panel("A", title, "part of the fastest fill with as many threads", variants(rows)))
    if rows := sections.get("B"):
        title = f"float32 into {size_word(rows[0]['output_bytes'])} in cache, 1 thread"
        panels.append(_Panel("B", title, "part of the fastest fill of the same cache", variants(rows)))
    if rows := [row for row in sections.get("C", []) if row["peer"] == "ggml" and row["format"]]:
        panels.append(_Panel("C", "Against ggml, 1 thread", "times as fast (log)", variants(rows)))
    return panels


def _draw_panel(axis: Any, panel: _Panel, names: list[str], groups: dict[str, dict[str, Row]]) -> None:
    from matplotlib import colormaps

    start = 1 if panel.section == "C" else 0  # as fast as the other: bars to the left are slower
    count = len(panel.variants)
    height = 0.8 / count
    for index, variant in enumerate(panel.variants):
        places = [place + (index + 0.5) * height - 0.4 for place in range(len(names))]
        lengths = [_figure(groups.get(name, {}).get(variant)) - start for name in names]
        colour = colormaps["Blues"](0.35 + 0.6 * index / max(1, count - 1))
        axis.barh(places, lengths, height, left=start, color=colour, label=variant)
    if panel.section == "C":
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")
        axis.axvline(start, color="black", linewidth=0.8)
        axis.axvline(targets.PEER_MEANS["ggml"], color=_TARGET, linewidth=1.2, label="target of the mean")
    else:
        _mark_targets(axis, names, groups)
    axis.set_title(panel.title, pad=26)
    axis.set(xlabel=panel.unit, yticks=range(len(names)), ylim=(-0.6, len(names) - 0.4))
    axis.set_yticklabels(names)
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "borderaxespad": 0.3}
    axis.legend(**place, ncols=count + 1, frameon=False, fontsize="small", columnspacing=1.2)


def _mark_targets(axis: Any, names: list[str], groups: dict[str, dict[str, Row]]) -> None:
    """A stroke at the target of each format."""
    marks = [
        (place, row["judged"]["target"])
        for place, name in enumerate(names)
        for row in groups.get(name, {}).values()
        if row["judged"]
    ]
    if marks:
        places, figures = zip(*marks, strict=True)
        starts, ends = [place - 0.42 for place in places], [place + 0.42 for place in places]
        axis.vlines(figures, starts, ends, color=_TARGET, linewidth=1.4, label="target")


def _figure(row: Row | None) -> float:
    return float(row["figure"]) if row else float("nan")
