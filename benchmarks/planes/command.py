"""The command line: measure, print, and write ``planes.json``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from benchmarks import command
from benchmarks.ceilings import load_stream_fill
from benchmarks.machine import describe, notes
from benchmarks.plan import Done
from benchmarks.planes import codecs, encode, memory, optional, peers, products
from benchmarks.planes.cases import cases
from benchmarks.planes.page import write_page
from benchmarks.planes.plan import Plan, usual
from benchmarks.planes.tables import SECTIONS, all_tables
from benchmarks.report import Report, Row, summarize
from cbquant.cli.progress import progress
from cbquant.planes import _formats

_VIEW = command.View("planes", all_tables, write_page)


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

    def measure() -> Report:
        return run(command.chosen(args, plan or usual(), _formats.get), args.sections)

    return command.carry_out(parser, args, measure, _VIEW)


def run(plan: Plan, letters: Sequence[str]) -> Report:
    """Measure these sections."""
    busy = notes()
    count = len(cases(plan.formats))
    sections: dict[str, list[Row]] = {}
    if "A" in letters:
        sections["A"] = _measure("planes to memory", plan, 2 * count, memory.to_memory)
    if "B" in letters:
        sections["B"] = _measure("16-bit floats", plan, count, memory.to_memory_16bit)
    if "C" in letters:
        sections["C"] = _measure("codecs", plan, len(codecs.KINDS), codecs.next_to_peers)
    if "D" in letters:
        sections["D"] = _measure("other libraries", plan, count, peers.next_to_peers)
    if "E" in letters:
        sections["E"] = _measure("products", plan, count * len(plan.ms), products.next_to_blocks)
    if {"F", "G"} & {*letters}:
        rows = _measure("encoding", plan, count, encode.measured)
        found = {"F": encode.against_numpy(rows), "G": encode.speeds(rows)}
        sections |= {letter: found[letter] for letter in found if letter in letters}
    return {
        "machine": describe(),
        "peers": optional.versions(),
        "notes": [*busy, load_stream_fill()[1], *optional.notes(), *products.notes()],
        "plan": plan.describe(),
        "sections": sections,
        "targets": summarize(sections),
    }


def _measure(title: str, plan: Plan, steps: int, measure: Callable[[Plan, Done], list[Row]]) -> list[Row]:
    with progress(title, steps) as advance:
        return measure(plan, lambda label: advance(1, label))


def _parser() -> argparse.ArgumentParser:
    parser = command.options(
        "planes",
        "How fast cbquant's codecs and planes are, next to the machine's limits and other libraries.",
        "Sections: A planes to memory, B the same to 16-bit floats, C codecs, D planes next to bitsandbytes and torch, "
        "E products, F and G encoding. All take less than five minutes.",
    )
    command.add_sections(parser, SECTIONS)
    return parser
