"""The command line: measure, print, and write ``quantize.json``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks import command
from benchmarks.machine import describe, notes
from benchmarks.plan import Done, block_formats
from benchmarks.quantize import first_call, speed, threads
from benchmarks.quantize.encoders import ggml_version, has_encoder, takes_importance
from benchmarks.quantize.inputs import DISTRIBUTIONS
from benchmarks.quantize.page import write_page
from benchmarks.quantize.plan import Plan
from benchmarks.quantize.tables import SECTIONS, all_tables
from benchmarks.report import Report, Row, summarize
from cbquant.cli.arguments import positive
from cbquant.cli.progress import progress

_VIEW = command.View("quantize", all_tables, write_page)


def main(argv: Sequence[str] | None = None, plan: Plan | None = None) -> int:
    """Run the benchmark.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; the default is those of the process.
    plan : Plan, optional
        Sizes and rounds other than the usual ones; the options come on top.

    Returns
    -------
    int
        0, or with --strict 1 where a target was missed.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    usual = plan or Plan(block_formats())
    return command.carry_out(parser, args, lambda: run(_plan(args, usual), args.sections), _VIEW)


def run(plan: Plan, letters: Sequence[str]) -> Report:
    """Measure these sections."""
    busy = notes()
    plan, left_out = _encoded(plan)
    sections: dict[str, list[Row]] = {}
    if {"A", "B"} & {*letters}:
        rows = _measure("next to ggml", plan, speed.measured)
        sections |= {"A": speed.against_ggml(rows), "B": speed.speeds(rows)}
    if "C" in letters:
        sections["C"] = _measure("threads", plan, threads.against_one_thread)
    if "D" in letters:
        sections["D"] = _measure("first calls", plan, first_call.first_calls)
    sections = {letter: rows for letter, rows in sections.items() if letter in letters}
    return {
        "machine": describe(),
        "peers": ggml_version(),
        "notes": [*busy, *left_out, *_absent()],
        "plan": plan.describe(),
        "sections": sections,
        "targets": summarize(sections),
    }


def _measure(title: str, plan: Plan, measure: Callable[[Plan, Done], list[Row]]) -> list[Row]:
    with progress(title, len(plan.formats)) as advance:
        seen: set[str] = set()

        def done(label: str) -> None:
            """The label begins with the format."""
            fmt = label.partition(" ")[0]
            advance(int(fmt not in seen), label)
            seen.add(fmt)

        return measure(plan, done)


def _encoded(plan: Plan) -> tuple[Plan, list[str]]:
    """The plan with the formats that have an encoder, and notes about the others."""
    formats = tuple(fmt for fmt in plan.formats if has_encoder(fmt))
    missing = [fmt.name for fmt in plan.formats if fmt not in formats]
    alike = [fmt.name for fmt in formats if not takes_importance(fmt)]
    found = [f"no encoder yet: {', '.join(missing)}"] if missing else []
    found += [f"an importance matrix changes nothing: {', '.join(alike)}"] if alike else []
    return replace(plan, formats=formats), found


def _absent() -> list[str]:
    return [] if ggml_version() else ["no ggml: pip install pywhispercpp"]


def _parser() -> argparse.ArgumentParser:
    parser = command.options(
        "quantize",
        "How fast cbquant encodes, next to ggml.",
        "Sections: A against ggml, B speed, C more threads, D what a first call costs. All take about ten minutes.",
    )
    command.add_sections(parser, SECTIONS)
    kinds = ",".join(DISTRIBUTIONS)
    parser.add_argument("--distributions", type=command.words, help=f"some of {kinds} (default: all)")
    parser.add_argument("--k", type=positive, help="elements of a row (default: 4096)")
    return parser


def _plan(args: argparse.Namespace, plan: Plan) -> Plan:
    """The plan that the options ask for.

    Raises
    ------
    ValueError
        An option that cannot be.
    """
    plan = command.chosen(args, plan)
    if args.distributions:
        unknown = [word for word in args.distributions if word not in DISTRIBUTIONS]
        if unknown:
            raise ValueError(f"--distributions: expected some of {', '.join(DISTRIBUTIONS)}, got {unknown[0]!r}")
        plan = replace(plan, distributions=tuple(args.distributions))
    if args.k:
        plan = replace(plan, k=args.k)
    for fmt in plan.formats:
        if fmt.kind == "plain":
            raise ValueError(f"--formats: expected block formats, got {fmt.name}")
        if plan.k % fmt.elements:
            raise ValueError(f"--k: {plan.k} is not a multiple of {fmt.elements} ({fmt.name})")
    return plan
