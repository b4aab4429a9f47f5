"""All sections as one report: JSON, tables, a picture."""

from __future__ import annotations

import json
import math
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cbquant
from cbquant.cli.output import Column, print_table
from cbquant.gpucheck import _aims
from cbquant.gpucheck._items import FAILED, NOT_RUN
from cbquant.gpucheck._probe import Gpu
from cbquant.gpucheck._sections import Outcome

Report = dict[str, Any]


def make(gpu: Gpu, outcomes: Sequence[Outcome], seconds: float) -> Report:
    """What the JSON file holds."""
    rows = list(all_rows(outcomes))
    return {
        "cbquant": cbquant.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "gpu": {**gpu._asdict(), "capability": ".".join(map(str, gpu.capability))},
        "seconds": seconds,
        "correct": not failures(outcomes),
        "sections": [outcome.as_dict() for outcome in outcomes],
        "rows": _aims.with_of_one(rows),
        "aims": _aims.judge(rows),
    }


def all_rows(outcomes: Sequence[Outcome]) -> Iterator[dict[str, Any]]:
    for outcome in outcomes:
        for line in outcome.lines:
            yield from (line.get("data") or {}).get("rows", [])


def failures(outcomes: Sequence[Outcome]) -> list[str]:
    """What is wrong: an exit code of 1."""
    counted = [outcome for outcome in outcomes if outcome.section.counts]
    found = [(o.section.name, line) for o in counted for line in o.lines if line["state"] == FAILED]
    texts = [f"{name}: {line['item']}: {line['text']}" for name, line in found]
    for outcome in counted:
        if outcome.section.name == "correctness" and outcome.state == NOT_RUN:
            texts.append("correctness: nothing was checked")
    return texts


def write(report: Report, folder: Path) -> list[Path]:
    """gpucheck.json, gpucheck.txt, and gpucheck.png where matplotlib is installed."""
    paths = [folder / "gpucheck.json", folder / "gpucheck.txt"]
    paths[0].write_text(json.dumps(finite(report), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    with paths[1].open("w", encoding="utf-8") as file:
        before, sys.stdout = sys.stdout, file
        try:
            show(report)
        finally:
            sys.stdout = before
    try:
        from cbquant.gpucheck._plot import draw

        if draw(report, folder / "gpucheck.png"):
            paths.append(folder / "gpucheck.png")
    except ImportError as error:
        print(f"cbquant: no picture: {error}", file=sys.stderr)
    return paths


def finite(value: Any) -> Any:
    """NaN and infinities as None, which JSON has.

    >>> finite({"a": [1.5, float("nan")]})
    {'a': [1.5, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, (list, tuple)) else value


# ---- tables ----


def show(report: Report) -> None:
    """Print all of it."""
    gpu = report["gpu"]
    memory = f"{gpu['memory_bytes'] / 1e9:.0f} GB"
    print(f"cbquant {report['cbquant']} on {gpu['name']} ({gpu['capability']}, {memory}), {report['seconds']:.0f} s\n")
    _show_sections(report)
    _show_lines(report, FAILED, "Failed")
    _show_lines(report, NOT_RUN, "Not run")
    _show_errors(report)
    for what, show_rows in (("matmul", _show_products), ("peer", _show_products), ("moe", _show_moe)):
        if rows := [row for row in report["rows"] if row["what"] == what]:
            show_rows(rows, what)
    if rows := [row for row in report["rows"] if row["what"] == "dequant"]:
        _show_dequant(rows)
    if rows := [row for row in report["rows"] if row["what"] == "operator"]:
        _show_operators(rows)
    _show_aims(report)


def _show_sections(report: Report) -> None:
    columns = [Column("section"), Column("items", right=True), Column("failed", right=True)]
    columns += [Column("not run", right=True), Column("s", right=True), Column("what")]
    rows = []
    for s in report["sections"]:
        counts = [sum(line["state"] == state for line in s["items"]) for state in (FAILED, NOT_RUN)]
        rows.append((s["section"], str(len(s["items"])), *map(str, counts), f"{s['seconds']:.0f}", s["title"]))
    print_table(columns, rows)


def _show_lines(report: Report, state: str, title: str) -> None:
    """Those of one text together."""
    texts: dict[tuple[str, str], list[str]] = {}
    for s in report["sections"]:
        for line in s["items"]:
            if line["state"] == state:
                texts.setdefault((s["section"], line["text"]), []).append(line["item"])
    if texts:
        print(f"\n{title}:")
    for (section, text), names in texts.items():
        print(f"- {section}, {', '.join(names)}: {text}")


def _show_errors(report: Report) -> None:
    """The largest relative L2 of all products of a precision and a type of result."""
    worst: dict[str, float] = {}
    for s in report["sections"]:
        for line in s["items"]:
            for name, value in (line.get("data") or {}).items():
                if name.startswith("L2 "):
                    worst[name[3:]] = max(worst.get(name[3:], 0.0), value)
    if worst:
        print(f"\nProducts, worst relative L2: {'; '.join(f'{name} {value:.1e}' for name, value in worst.items())}")


def _show_products(rows: list[dict[str, Any]], what: str) -> None:
    title = "Products with bf16 tensor cores" if what == "matmul" else "Peers"
    print(f"\n{title}; bf16 is torch's (cuBLAS), budget is instructions of a lane for each weight:")
    names = ("M", "us", "spread", "of copy", "x bf16", "TFLOP/s", "budget")
    columns = [Column("format"), Column("N x K"), *(Column(name, right=True) for name in names)]
    print_table(columns, [_product_cells(row) for row in rows])


def _product_cells(row: dict[str, Any]) -> tuple[str, ...]:
    budget = row.get("budget")
    how = "" if row["captured"] else " (calls)"
    return (
        row["format"],
        f"{row['n']} x {row['k']}",
        str(row["m"]),
        f"{row['seconds'] * 1e6:.1f}{how}",
        f"{100 * row['spread']:.0f} %",
        f"{row['of_copy']:.2f}",
        f"{row['times_bf16']:.2f}",
        f"{row['flop_per_second'] / 1e12:.1f}",
        "" if budget is None else f"{budget:.1f}",
    )


def _show_moe(rows: list[dict[str, Any]], what: str) -> None:
    first = rows[0]
    shape = f"{first['m']} tokens, {first['picks']} of {first['experts']} experts of {first['n']} x {first['k']}"
    print(f"\nMoE prefill, {shape}:")
    columns = [Column("format"), *(Column(name, right=True) for name in ("ms", "x bf16", "TFLOP/s"))]
    cells = [
        (r["format"], f"{r['seconds'] * 1e3:.2f}", f"{r['times_bf16']:.2f}", f"{r['flop_per_second'] / 1e12:.0f}")
        for r in rows
    ]
    print_table(columns, cells)


def _show_dequant(rows: list[dict[str, Any]]) -> None:
    print("\nDecoding to bf16, bytes read and written:")
    columns = [Column("format"), *(Column(name, right=True) for name in ("ms", "TB/s", "of copy"))]
    cells = [
        (r["format"], f"{r['seconds'] * 1e3:.3f}", f"{r['bytes'] / r['seconds'] / 1e12:.2f}", f"{r['of_copy']:.2f}")
        for r in rows
    ]
    print_table(columns, cells)


def _show_operators(rows: list[dict[str, Any]]) -> None:
    print("\nOperators of DeepSeek-V4, bytes read and written, and how many times as fast as torch's expression:")
    columns = [Column("operator"), *(Column(name, right=True) for name in ("us", "of copy", "x torch"))]
    cells = [
        (
            r["format"],
            f"{r['seconds'] * 1e6:.1f}",
            f"{r['of_copy']:.2f}",
            f"{r['times_torch']:.2f}" if "times_torch" in r else "",
        )
        for r in rows
    ]
    print_table(columns, cells)


def _show_aims(report: Report) -> None:
    print("\nAims (of an H200):")
    columns = [Column("aim"), Column("format"), Column("found", right=True), Column("aim", right=True), Column("")]
    cells = []
    for verdict in report["aims"]:
        value, held = verdict["value"], verdict["held"]
        found = "not measured" if value is None else f"{value:.2f}"
        word = "" if held is None else "held" if held else "MISSED"
        cells.append(
            (verdict["aim"], verdict["format"] or "", found, f"{verdict['sense']} {verdict['target']:g}", word)
        )
    print_table(columns, cells)
