"""The command line: measure, print, and write ``dequant.json`` and ``dequant.png``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import cbquant
from benchmarks.ceilings import load_stream_fill
from benchmarks.dequant import cache, memory, peers, plot
from benchmarks.dequant.page import write_page
from benchmarks.dequant.plan import Done, Plan, Row
from benchmarks.dequant.report import Report, summarize
from benchmarks.dequant.tables import all_tables, header
from benchmarks.machine import describe
from cbquant import _formats
from cbquant.cli.arguments import thread_count
from cbquant.cli.output import print_json, print_table
from cbquant.cli.progress import progress

#: What --sections names.
SECTIONS: dict[str, Callable[[Plan, Done], list[Row]]] = {
    "A": memory.to_memory,
    "B": cache.in_cache,
    "C": peers.against_peers,
    "D": memory.into_new_arrays,
    "E": memory.to_memory_16bit,
}
_RESULTS = Path(__file__).resolve().parent.parent / "results"
_QUICK_ROUNDS = 3


def main(argv: Sequence[str] | None = None, plan: Plan | None = None) -> int:
    """Run the benchmark.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; the default is those of the process.
    plan : Plan, optional
        Sizes and rounds other than the usual ones; the options for formats, threads and --quick come on top.

    Returns
    -------
    int
        0, or with --strict 1 where a target was missed.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        chosen = _plan(args, plan or Plan(tuple(sorted(cbquant.formats(), key=lambda f: f.kind == "plain"))))
        report = _load(args.load) if args.load else run(chosen, args.sections)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if args.json:
        print_json(report)
    else:
        show(report)
    _write(report, args)
    return 1 if args.strict and report["targets"]["misses"] else 0


def run(plan: Plan, letters: Sequence[str]) -> Report:
    """Measure these sections."""
    sections = {}
    for letter in letters:
        with progress(f"section {letter}", len(plan.formats)) as advance:
            sections[letter] = SECTIONS[letter](plan, lambda name, advance=advance: advance(1, name))  # type: ignore[misc]
    return {
        "machine": describe(),
        "peers": peers.versions(),
        "notes": [load_stream_fill()[1], *peers.notes()],
        "plan": {
            "formats": [fmt.name for fmt in plan.formats],
            "threads": plan.threads,
            "rounds": plan.rounds,
            "sample_seconds": plan.sample_seconds,
        },
        "call_seconds": cache.call_seconds(plan),
        "sections": sections,
        "targets": summarize(sections),
    }


def show(report: Report) -> None:
    """Print the report."""
    for key, text in header(report):
        print(f"{key:<13} {text}")
    for table in all_tables(report):
        print(f"\n{table.title}\n{table.note}\n")
        print_table(table.columns, table.rows, table.total)
    summary = report["targets"]
    print(f"\n{summary['held']} of {summary['judged']} targets held")
    for miss in summary["misses"]:
        print(f"missed  {miss}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dequant",
        description="How fast cbquant decodes, against the machine's limits and other decoders.",
        epilog="Sections: A to memory, B in cache, C other decoders, D into new arrays, E 16-bit floats.",
    )
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK_ROUNDS} rounds: a first impression")
    parser.add_argument("--formats", type=_words, help="formats, with commas between them (default: all)")
    parser.add_argument("--threads", type=_words, help="numbers of threads for A, D and E (default: 1,2)")
    parser.add_argument("--sections", type=_letters, default=[*SECTIONS], help="such as A,C (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else on stdout")
    parser.add_argument("--out", type=Path, default=_RESULTS, help="folder (default: benchmarks/results)")
    parser.add_argument("--docs", type=Path, help="also write this Markdown page")
    parser.add_argument("--load", type=Path, help="measure nothing: show this JSON file of an earlier run")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a target was missed")
    return parser


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _letters(text: str) -> list[str]:
    letters = [word.upper() for word in _words(text)]
    unknown = [letter for letter in letters if letter not in SECTIONS]
    if unknown or not letters:
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(SECTIONS)}, got {text!r}")
    return letters


def _plan(args: argparse.Namespace, plan: Plan) -> Plan:
    if args.formats:
        plan = replace(plan, formats=tuple(_formats.get(name) for name in args.formats))
    if args.threads:
        try:
            plan = replace(plan, threads=tuple(thread_count(text) for text in args.threads))
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"--threads: {error}") from None
    return replace(plan, rounds=_QUICK_ROUNDS) if args.quick else plan


def _load(path: Path) -> Report:
    report: Report = json.loads(path.read_text(encoding="utf-8"))
    missing = {"machine", "plan", "sections", "targets"} - report.keys()
    if missing:
        raise ValueError(f"{path}: not a report of this benchmark, it lacks {', '.join(sorted(missing))}")
    return report


def _write(report: Report, args: argparse.Namespace) -> None:
    """The files, and where they are (on stderr)."""
    args.out.mkdir(parents=True, exist_ok=True)
    written = [args.out / "dequant.json"]
    written[0].write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    picture = args.out / "dequant.png"
    try:
        written += [picture] if plot.draw(report, picture) else []
    except ImportError:
        print("no picture: pip install matplotlib", file=sys.stderr)
    if args.docs:
        args.docs.parent.mkdir(parents=True, exist_ok=True)
        args.docs.write_text(write_page(report), encoding="utf-8")
        written.append(args.docs)
    print("written: " + ", ".join(map(str, written)), file=sys.stderr)
