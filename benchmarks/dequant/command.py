"""The command line: measure, print, and write ``dequant.json`` and ``dequant.png``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks import command
from benchmarks.ceilings import load_stream_fill
from benchmarks.dequant import cache, memory, peers, plot
from benchmarks.dequant.page import write_page
from benchmarks.dequant.plan import Plan
from benchmarks.dequant.tables import all_tables
from benchmarks.machine import describe, notes
from benchmarks.plan import Done, block_formats_first
from benchmarks.report import Report, Row, summarize
from cbquant.cli.progress import progress

#: What --sections names.
SECTIONS: dict[str, Callable[[Plan, Done], list[Row]]] = {
    "A": memory.to_memory,
    "B": cache.in_cache,
    "C": peers.against_peers,
    "D": memory.into_new_arrays,
    "E": memory.to_memory_16bit,
}


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
    parser = command.options(
        "dequant",
        "How fast cbquant decodes, against the machine's limits and other decoders.",
        "Sections: A to memory, B in cache, C other decoders, D into new arrays, E 16-bit floats. "
        "Threads are those of A, D and E.",
    )
    command.add_sections(parser, SECTIONS)
    args = parser.parse_args(argv)
    usual = plan or Plan(block_formats_first())
    view = command.View("dequant", all_tables, write_page, lambda report, path: plot.draw(report, path))
    return command.carry_out(parser, args, lambda: run(command.chosen(args, usual), args.sections), view)


def run(plan: Plan, letters: Sequence[str]) -> Report:
    """Measure these sections."""
    busy = notes()
    sections = {}
    for letter in letters:
        with progress(f"section {letter}", len(plan.formats)) as advance:
            sections[letter] = SECTIONS[letter](plan, lambda name, advance=advance: advance(1, name))  # type: ignore[misc]
    return {
        "machine": describe(),
        "peers": peers.versions(),
        "notes": [*busy, load_stream_fill()[1], *peers.notes()],
        "plan": plan.describe(),
        "call_seconds": cache.call_seconds(plan),
        "sections": sections,
        "targets": summarize(sections),
    }
