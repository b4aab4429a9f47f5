"""The command line: measure, print, and write ``deepseek.json``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks import command
from benchmarks.ceilings import load_stream_copy
from benchmarks.deepseek import attention, limits, peers, topk
from benchmarks.deepseek.elementwise import BY_ARITHMETIC, BY_MEMORY, chosen
from benchmarks.deepseek.page import write_page
from benchmarks.deepseek.plan import Plan
from benchmarks.deepseek.tables import SECTIONS, all_tables
from benchmarks.machine import describe, notes
from benchmarks.peaks import load_peaks
from benchmarks.plan import Done
from benchmarks.report import Report, Row, summarize
from cbquant.cli.arguments import positive
from cbquant.cli.progress import progress

_VIEW = command.View("deepseek", all_tables, write_page)
_ATTENTION = ("sdpa_decode_sink", "sparse_sdpa_decode", "mla_decode", "indexer_score", "indexer_select", "indexer_topk")
_OPERATORS = (
    *dict.fromkeys(maker.__name__.removesuffix("_128") for maker in (*BY_MEMORY, *BY_ARITHMETIC)),
    *_ATTENTION,
)


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
    return command.carry_out(parser, args, lambda: run(_plan(args, plan or Plan()), args.sections), _VIEW)


def run(plan: Plan, letters: Sequence[str]) -> Report:
    """Measure these sections."""
    busy = notes()
    sections: dict[str, list[Row]] = {}
    everything = len(chosen((*BY_MEMORY, *BY_ARITHMETIC), plan.operators))
    if "A" in letters:
        sections["A"] = _measure("next to memory", plan, len(chosen(BY_MEMORY, plan.operators)), limits.next_to_memory)
    if "B" in letters:
        sections["B"] = _measure("next to NumPy", plan, everything, peers.next_to_numpy)
    if "C" in letters and peers.torch_version():
        sections["C"] = _measure("next to torch", plan, everything, peers.next_to_torch)
    if "D" in letters:
        cases = len(attention.chosen(plan.operators))
        sections["D"] = _measure("next to the machine's limits", plan, cases, attention.next_to_limits)
    if "E" in letters and (not plan.operators or "indexer_topk" in plan.operators):
        sections["E"] = _measure("top-k", plan, len(plan.choices), topk.next_to_peers)
    return {
        "machine": describe(),
        "peers": peers.torch_version(),
        "notes": [*busy, *_absent()],
        "plan": plan.describe(),
        "sections": sections,
        "targets": summarize(sections),
    }


def _measure(title: str, plan: Plan, steps: int, measure: Callable[[Plan, Done], list[Row]]) -> list[Row]:
    with progress(title, steps) as advance:
        return measure(plan, lambda label: advance(1, label))


def _absent() -> list[str]:
    found = [] if peers.torch_version() else ["no torch: pip install torch"]
    return found + [reason for library, reason in (load_stream_copy(), load_peaks()) if library is None]


def _parser() -> argparse.ArgumentParser:
    parser = command.options(
        "deepseek",
        "How fast the operators of cbquant.deepseek are.",
        "Sections: A next to memory, B next to NumPy, C next to torch, D attention and indexer next to the machine's "
        "limits, E top-k next to others. All take about twenty minutes.",
        formats=False,
    )
    command.add_sections(parser, SECTIONS)
    parser.add_argument("--operators", type=command.words, help=f"some of {','.join(_OPERATORS)} (default: all)")
    parser.add_argument("--tokens", type=positive, help="tokens of a prompt (default: 8192)")
    parser.add_argument("--positions", type=positive, help="positions in a cache (default: 16384)")
    parser.add_argument("--columns", type=positive, help="elements of a token (default: 4096)")
    return parser


def _plan(args: argparse.Namespace, plan: Plan) -> Plan:
    """The plan that the options ask for.

    Raises
    ------
    ValueError
        An option that cannot be.
    """
    plan = command.chosen(args, plan)
    if args.operators:
        unknown = [word for word in args.operators if word not in _OPERATORS]
        if unknown:
            raise ValueError(f"--operators: expected some of {', '.join(_OPERATORS)}, got {unknown[0]!r}")
        plan = replace(plan, operators=tuple(args.operators))
    if args.tokens:
        plan = replace(plan, tokens=args.tokens)
    if args.positions:
        plan = replace(plan, positions=args.positions)
    if args.columns:
        plan = replace(plan, columns=args.columns)
    return plan
