"""The figures as a picture: decoding as a part of a copy, products as a multiple of bf16's speed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_AIM = "#c1440e"


def draw(report: dict[str, Any], path: Path) -> bool:
    """Write a PNG file; False where nothing was measured. An ImportError where matplotlib is missing."""
    from matplotlib.figure import Figure

    decoded = [row for row in report["rows"] if row["what"] == "dequant"]
    lines = _lines(report["rows"])
    if not decoded and not lines:
        return False
    figure = Figure(figsize=(13, 6.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_decoding(left, decoded)
    _draw_products(right, lines)
    figure.suptitle(f"cbquant {report['cbquant']} on {report['gpu']['name']}")
    figure.savefig(path, dpi=120)
    return True


def _draw_decoding(axis: Any, rows: list[dict[str, Any]]) -> None:
    places = range(len(rows))
    axis.barh(places, [row["of_copy"] for row in rows], color="#1f5f99")
    axis.set_yticks(places, [row["format"] for row in rows], fontsize="small")
    axis.invert_yaxis()
    axis.axvline(0.85, color=_AIM, linewidth=1.2, label="aim")
    axis.set(xlabel="part of a device to device copy", title="Decoding to bf16")
    axis.grid(axis="x", alpha=0.3)
    axis.legend(frameon=False, fontsize="small")


def _lines(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each format and shape, more than one, by M."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["what"] in ("matmul", "peer"):
            found.setdefault(f"{row['format']}, {row['n']} x {row['k']}", []).append(row)
    return {name: sorted(some, key=lambda r: r["m"]) for name, some in found.items() if len(some) > 1}


def _draw_products(axis: Any, lines: dict[str, list[dict[str, Any]]]) -> None:
    for name, rows in lines.items():
        dashes = "--" if rows[0]["what"] == "peer" else "-"
        axis.plot([r["m"] for r in rows], [r["times_bf16"] for r in rows], dashes, marker="o", markersize=3, label=name)
    axis.axhline(1, color="black", linewidth=0.8)
    axis.set(xlabel="rows of x", ylabel="times as fast as bf16 (cuBLAS)", title="Products")
    if lines:
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.legend(frameon=False, fontsize="x-small", ncols=2)
    axis.grid(alpha=0.3)
