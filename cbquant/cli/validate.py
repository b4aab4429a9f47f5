"""Look for damaged blocks: those whose scale or minimum is NaN or infinite.

Such blocks decode to NaN or infinities. Of plain float tensors (f32, f16, bf16,
f64) the values themselves are looked at: each is a block of its own. Of codes
beside scales in safetensors a block is what has one scale; of FP8 the codes are
looked at too.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import cbquant
from cbquant import _formats
from cbquant._unknown import is_unknown
from cbquant.cli.arguments import add_scales, add_threads, opened
from cbquant.cli.output import Column, note, print_json, print_table, printable
from cbquant.cli.progress import Advance, progress
from cbquant.cli.scales import bad_blocks
from cbquant.cli.tensors import obstacle, raw_bytes, slices
from cbquant.files import File, TensorInfo
from cbquant.files._plain import whole_number_dtype
from cbquant.planes._tensor import PlanesTensor

#: Of each tensor the indices of this many bad blocks are listed.
_LISTED = 8

_COLUMNS = (
    Column("tensor"),
    Column("format"),
    Column("blocks", right=True),
    Column("bad", right=True),
    Column("first of them", width=_LISTED * len("9223372036854775807, ") + len("...")),
)


class Result(NamedTuple):
    """A tensor's blocks: how many there are, how many are bad, the indices of the first bad ones."""

    name: str
    format: str
    blocks: int
    bad: int
    first: list[int]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", metavar="FILE", help="a GGUF or safetensors file")
    add_scales(parser)
    add_threads(parser)


def run(args: argparse.Namespace) -> int:
    """Print the tensors with bad blocks, or the report as JSON."""
    with opened(args.file, args) as file:
        tensors = file.infos.values()
        unknown = [tensor for tensor in tensors if is_unknown(tensor.format)]
        checked = [t for t in tensors if not is_unknown(t.format) and whole_number_dtype(t.format) is None]
        with progress("validating", sum(tensor.nbytes for tensor in checked)) as advance:
            outcomes = {tensor.name: _check(file, tensor, args.threads, advance) for tensor in checked}
        obstacles = {tensor.name: f"tensor {tensor.name!r}{obstacle(file, tensor)}" for tensor in unknown}
    obstacles |= {name: str(outcome) for name, outcome in outcomes.items() if isinstance(outcome, ValueError)}
    for text in obstacles.values():
        note(f"not checked: {text}")
    results = [outcome for outcome in outcomes.values() if isinstance(outcome, Result)]
    found = [result for result in results if result.bad]
    blocks = sum(result.blocks for result in results)
    if args.json:
        report = {"path": args.file, "tensors": len(results), "blocks": blocks}
        findings = [result._asdict() for result in found]
        print_json({**report, "findings": findings, "not_checked": list(obstacles)})
    else:
        _print(found, f"{args.file}: the scales of {blocks:,} blocks in {len(results):,} tensors")
    return 1 if found else 0


def _check(file: File, tensor: TensorInfo, threads: int | None, advance: Advance) -> Result | ValueError:
    """What was found, or why the tensor cannot be given."""
    try:
        found = file[tensor.name]
    except ValueError as error:
        return error
    if isinstance(found, PlanesTensor):
        count, found_bad = bad_blocks(found)
        advance(tensor.nbytes, tensor.name)
        return Result(tensor.name, tensor.format, count, found_bad.size, found_bad[:_LISTED].tolist())
    fmt = _formats.get(tensor.format)
    first: list[int] = []
    bad = start = 0
    for blocks in slices(raw_bytes(file, tensor.name), fmt):
        indices = cbquant.validate(blocks, fmt.name, threads=threads)
        bad += indices.size
        first += (start + indices[: _LISTED - len(first)]).tolist()
        start += blocks.size // fmt.bytes
        advance(blocks.size, tensor.name)
    return Result(tensor.name, fmt.name, start, bad, first)


def _print(found: Sequence[Result], subject: str) -> None:
    if not found:
        print(printable(f"{subject} are all finite"))
        return
    rows = [(r.name, r.format, f"{r.blocks:,}", f"{r.bad:,}", _first(r)) for r in found]
    print_table(_COLUMNS, rows)
    bad = sum(result.bad for result in found)
    print(printable(f"{subject}: {bad:,} are NaN or infinite, in {len(found):,} of the tensors"))


def _first(result: Result) -> str:
    more = ", ..." if result.bad > len(result.first) else ""
    return ", ".join(map(str, result.first)) + more
