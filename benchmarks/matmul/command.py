"""The command line: measure, print, and write ``matmul.json``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace

from benchmarks import command
from benchmarks.machine import describe, notes
from benchmarks.matmul import peers
from benchmarks.matmul.page import write_page
from benchmarks.matmul.plan import MODES, ROWS, SHAPES, Plan
from benchmarks.matmul.products import Run
from benchmarks.matmul.ratios import sections
from benchmarks.matmul.tables import all_tables
from benchmarks.peaks import load_peaks
from benchmarks.plan import block_formats
from benchmarks.report import Report, summarize
from cbquant.cli.arguments import positive
from cbquant.cli.progress import progress

_QUICK_ROWS = (1, 8, 64)
_VIEW = command.View("matmul", all_tables, write_page)


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
    return command.carry_out(parser, args, lambda: run(_plan(args, usual)), _VIEW)


def run(plan: Plan) -> Report:
    """Measure."""
    busy = notes()
    steps = len(plan.shapes) * len(plan.formats) * len(plan.ms)
    with progress("products", steps) as advance:
        measuring = Run(plan, lambda name: advance(1, name))
        products = measuring.rows()
    machine = describe()
    found = sections(products, machine["isa"])
    return {
        "machine": machine,
        "peers": {name: peer.version() for name, peer in peers.chosen(plan.peers).items()},
        "notes": [*busy, load_peaks()[1], *peers.notes(plan.peers), *measuring.notes],
        "plan": plan.describe(),
        "sections": found,
        "targets": summarize(found),
    }


def _parser() -> argparse.ArgumentParser:
    parser = command.options(
        "matmul",
        "How fast cbquant multiplies with compressed weights, against other libraries and the machine's limits.",
        "The default leaves out what has no target: with ggml and NumPy it takes about 15 minutes, --full some hours.",
    )
    parser.add_argument("--full", action="store_true", help="all shapes, rows and precisions")
    parser.add_argument("--m", type=command.words, help="numbers of rows of x, with commas between them")
    parser.add_argument("--modes", type=command.words, help=f"precisions: some of {','.join(MODES)}")
    parser.add_argument("--shapes", type=command.words, help="N and K of weights, such as 4096x4096,14336x4096")
    parser.add_argument("--peers", type=command.words, help=f"some of {','.join(peers.PEERS)} (default: all installed)")
    return parser


def _plan(args: argparse.Namespace, plan: Plan) -> Plan:
    """The plan that the options ask for.

    Raises
    ------
    ValueError
        An option that cannot be.
    """
    if args.quick and args.full:
        raise ValueError("--quick and --full: expected one of them")
    plan = command.chosen(args, plan)
    if args.full:
        plan = replace(plan, shapes=SHAPES, ms=ROWS, modes=MODES)
    if args.quick:
        plan = replace(plan, ms=_QUICK_ROWS)
    if args.m:
        plan = replace(plan, ms=tuple(sorted({_rows(text) for text in args.m})))
    if args.modes:
        unknown = [mode for mode in args.modes if mode not in MODES]
        if unknown:
            raise ValueError(f"--modes: expected some of {', '.join(MODES)}, got {unknown[0]!r}")
        plan = replace(plan, modes=tuple(args.modes))
    if args.shapes:
        plan = replace(plan, shapes=tuple(_shape(text) for text in args.shapes))
    if args.peers:
        peers.chosen(args.peers)
        plan = replace(plan, peers=tuple(args.peers))
    _check_blocks(plan)
    return plan


def _rows(text: str) -> int:
    try:
        return positive(text)
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"--m: {error}") from None


def _shape(text: str) -> tuple[int, int]:
    found = re.fullmatch("([1-9][0-9]{0,8})x([1-9][0-9]{0,8})", text)
    if not found:
        raise ValueError(f"--shapes: expected N and K as in 4096x4096, got {text!r}")
    return int(found[1]), int(found[2])


def _check_blocks(plan: Plan) -> None:
    for fmt in plan.formats:
        for _, k in plan.shapes:
            if k % fmt.elements:
                raise ValueError(f"--shapes: k={k} is not a multiple of {fmt.elements} ({fmt.name})")
