"""The command line of a benchmark: measure, print, and write what was found into files."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from benchmarks.plan import Plan
from benchmarks.report import Report
from benchmarks.tables import Table, header
from cbquant import _formats
from cbquant.cli.arguments import thread_count
from cbquant.cli.output import print_json, print_table

_RESULTS = Path(__file__).resolve().parent / "results"
_QUICK_ROUNDS = 3

AnyPlan = TypeVar("AnyPlan", bound=Plan)


class View(NamedTuple):
    """How a benchmark's report is shown, and what it is called."""

    name: str
    tables: Callable[[Report], list[Table]]
    page: Callable[[Report], str]
    #: Writes a picture where there is something to draw; raises ImportError without matplotlib.
    draw: Callable[[Report, Path], bool] | None = None


def options(name: str, description: str, epilog: str, formats: bool = True) -> argparse.ArgumentParser:
    """A parser of the options that all benchmarks have; `formats`: --formats too."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description, epilog=epilog)
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK_ROUNDS} rounds: a first impression")
    if formats:
        parser.add_argument("--formats", type=words, help="formats, with commas between them (default: all)")
    parser.add_argument("--threads", type=words, help="numbers of threads (default: 1,2)")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else on stdout")
    parser.add_argument("--out", type=Path, default=_RESULTS, help="folder (default: benchmarks/results)")
    parser.add_argument("--docs", type=Path, help="also write this Markdown page")
    parser.add_argument("--load", type=Path, help="measure nothing: show this JSON file of an earlier run")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a target was missed")
    return parser


def add_sections(parser: argparse.ArgumentParser, sections: Collection[str]) -> None:
    """The option --sections, of letters that are sections of the benchmark."""

    def letters(text: str) -> list[str]:
        found = [word.upper() for word in words(text)]
        if not found or any(letter not in sections for letter in found):
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(sections)}, got {text!r}")
        return found

    parser.add_argument("--sections", type=letters, default=[*sections], help="such as A,C (default: all)")


def words(text: str) -> list[str]:
    """What stands between commas.

    >>> words("q4_0,q4_k")
    ['q4_0', 'q4_k']
    """
    return [word for word in text.split(",") if word]


def chosen(args: argparse.Namespace, plan: AnyPlan, find: Callable[[str], Any] = _formats.get) -> AnyPlan:
    """The plan with what the common options say; `find` is the format of a name.

    Raises
    ------
    ValueError
        An unknown format, a number of threads that is none.
    """
    if getattr(args, "formats", None):
        plan = replace(plan, formats=tuple(find(name) for name in args.formats))
    if args.threads:
        try:
            plan = replace(plan, threads=tuple(thread_count(text) for text in args.threads))
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"--threads: {error}") from None
    return replace(plan, rounds=_QUICK_ROUNDS) if args.quick else plan


def carry_out(
    parser: argparse.ArgumentParser, args: argparse.Namespace, measure: Callable[[], Report], view: View
) -> int:
    """Measure or load a report, show it and write it.

    Returns
    -------
    int
        The exit code: 0, or with --strict 1 where a target was missed.
    """
    try:
        report = _load(args.load, view.name) if args.load else measure() | {"benchmark": view.name}
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if args.json:
        print_json(report)
    else:
        _show(report, view)
    _write(report, args, view)
    return 1 if args.strict and report["targets"]["misses"] else 0


def _show(report: Report, view: View) -> None:
    for key, text in header(report):
        print(f"{key:<13} {text}")
    for table in view.tables(report):
        print(f"\n{table.title}\n{table.note}\n")
        print_table(table.columns, table.rows, table.total)
    summary = report["targets"]
    print(f"\n{summary['held']} of {summary['judged']} targets held")
    for miss in summary["misses"]:
        print(f"missed  {miss}")


def _load(path: Path, name: str) -> Report:
    report: Report = json.loads(path.read_text(encoding="utf-8"))
    missing = {"machine", "plan", "sections", "targets"} - report.keys()
    if missing:
        raise ValueError(f"{path}: not a report of this benchmark, it lacks {', '.join(sorted(missing))}")
    if report.get("benchmark", name) != name:
        raise ValueError(f"{path}: a report of benchmarks.{report['benchmark']}, expected one of benchmarks.{name}")
    return report


def _write(report: Report, args: argparse.Namespace, view: View) -> None:
    """The files, and where they are (on stderr)."""
    args.out.mkdir(parents=True, exist_ok=True)
    written = [args.out / f"{view.name}.json"]
    written[0].write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if view.draw:
        picture = args.out / f"{view.name}.png"
        try:
            written += [picture] if view.draw(report, picture) else []
        except ImportError:
            print("no picture: pip install matplotlib", file=sys.stderr)
    if args.docs:
        args.docs.parent.mkdir(parents=True, exist_ok=True)
        args.docs.write_text(view.page(report), encoding="utf-8")
        written.append(args.docs)
    print("written: " + ", ".join(map(str, written)), file=sys.stderr)
