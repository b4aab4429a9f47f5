"""Quantize a model file, GGUF or safetensors, to a GGUF file.

Weights of two dimensions or more get the format of --type; norms, other tensors
of one dimension and some small ones stay as they are. Rows that are no whole
blocks get another format, which is told. Tensors that are quantized already are
decoded first.

--map PATTERN=FORMAT chooses another format: PATTERN is a part of a tensor's name,
or a shell pattern for all of it; the first that matches counts. FORMAT may be
keep or drop too.

DST appears when it is whole. After an interruption the same command goes on where
it was stopped.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cbquant.cli.arguments import CommandError, add_scales, file_path, thread_count
from cbquant.cli.output import Column, note, print_json, print_table, printable

if TYPE_CHECKING:
    from cbquant.convert import Report

_COLUMNS = (
    Column("format"),
    Column("tensors", right=True),
    Column("weights", right=True),
    Column("bytes before", right=True),
    Column("bytes after", right=True),
    Column("bits/weight", right=True),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("source", metavar="SRC", help="a GGUF or safetensors file, a shard, or the index of shards")
    parser.add_argument("destination", metavar="DST", type=file_path, help="the GGUF file to write")
    parser.add_argument(
        "--type", metavar="FORMAT", type=_format, required=True, help="a block format, f32, f16 or bf16"
    )
    parser.add_argument("--map", metavar="PATTERN=FORMAT", action="append", help="may be given several times")
    parser.add_argument(
        "--imatrix", metavar="FILE", help="importance matrix of llama-imatrix, or 'ones' where formats need one"
    )
    parser.add_argument(
        "--method", choices=("reference", "mse"), default="reference", help="ggml's bytes (default), or less error"
    )
    parser.add_argument("--architecture", metavar="NAME", help="general.architecture, for a source of safetensors")
    parser.add_argument(
        "--threads",
        type=thread_count,
        metavar="N",
        help="threads to work with (default: CBQUANT_NUM_THREADS, else the cores at hand)",
    )
    add_scales(parser)
    parser.add_argument("--force", action="store_true", help="overwrite DST")
    parser.add_argument("--no-progress", action="store_true", help="show no progress, on a terminal either")


def _format(text: str) -> str:
    from cbquant.convert._rules import target_format

    try:
        return target_format(text).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("fmt: ")) from None


def run(args: argparse.Namespace) -> int:
    """Convert, and say what became of the tensors."""
    # At the first use: the other commands do not need it.
    from cbquant.convert import quantize_file

    if args.destination.is_file() and not args.force:
        raise CommandError(f"{args.destination}: exists already (--force overwrites)")
    try:
        report = quantize_file(
            args.source,
            args.destination,
            args.type,
            map=args.map,
            imatrix=args.imatrix,
            progress=not args.no_progress,
            method=args.method,
            threads=args.threads,
            architecture=args.architecture,
            overwrite=args.force,
            tile=args.tile,
            unscaled_fp8=args.unscaled_fp8,
        )
    except ImportError as error:
        raise CommandError(str(error)) from None
    if args.json:
        print_json(_plain(report))
    else:
        _print(report)
    return 0


def _plain(report: Report) -> dict[str, Any]:
    return {
        "source": report.source,
        "destination": report.destination,
        "format": report.format,
        "seconds": report.seconds,
        "bytes_before": report.bytes_before,
        "bytes_after": report.bytes_after,
        "resumed": report.resumed,
        "formats": [fmt._asdict() for fmt in report.formats],
        "tensors": [{**tensor._asdict(), "is_fallback": tensor.is_fallback} for tensor in report.tensors],
        "dropped": report.dropped,
        "told": report.told,
    }


def _print(report: Report) -> None:
    for line in report.notes():
        note(line)
    rows = [
        (f.format, *(f"{number:,}" for number in f[1:]), f"{8 * f.bytes_after / f.elements:.4g}" if f.elements else "")
        for f in report.formats
    ]
    weights = sum(tensor.elements for tensor in report.tensors)
    bits = f"{8 * sum(tensor.bytes_after for tensor in report.tensors) / weights:.4g}" if weights else ""
    sizes = (f"{report.bytes_before:,}", f"{report.bytes_after:,}")
    print_table(_COLUMNS, rows, ("file", f"{len(report.tensors):,}", f"{weights:,}", *sizes, bits))
    resumed = f", {report.resumed:,} bytes of them from an earlier attempt" if report.resumed else ""
    print(printable(f"{report.destination}: {report.bytes_after:,} bytes in {report.seconds:.1f} s{resumed}"))
