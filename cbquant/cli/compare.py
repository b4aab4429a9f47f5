"""Tell how far the tensors of a file are from those of another.

A is taken to be right. Of each tensor of the same name and shape: the RMSE, the
relative error (Frobenius norms of B - A and of A), the cosine, and the worst
block of 32 elements, with its RMSE as a part of the root mean square of the
tensor. Whole numbers are only compared. NaN and infinities are counted and left
out. With --max-error the exit code is 1 where a tensor is beyond it; tensors that
are equal never are, and two NaN in the same place are equal.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import cbquant
from cbquant._compare import chosen_names
from cbquant._compare._result import NUMBERS, ORDERS, TITLES, Comparison, cells
from cbquant.cli.arguments import CommandError, add_scales, add_threads, file_path, opened, positive
from cbquant.cli.output import Column, print_json, print_table, printable
from cbquant.cli.progress import progress
from cbquant.cli.writers import refuse_overwriting

_COLUMNS = tuple(Column(title, right=title in NUMBERS) for title in TITLES)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("a", metavar="A", help="a GGUF or safetensors file")
    parser.add_argument("b", metavar="B", help="another one")
    parser.add_argument(
        "--names", metavar="GLOB", action="append", help="only tensors of this name or shell pattern; several times"
    )
    parser.add_argument(
        "--sort",
        choices=ORDERS,
        default="file",
        help="the worst first: by RMSE, relative error, cosine, worst block; else as in A (default), or by name",
    )
    parser.add_argument("--block", metavar="N", type=positive, default=32, help="elements of a block (default: 32)")
    parser.add_argument("--plot", metavar="FILE", type=file_path, help="draw the errors: .png, .svg, .pdf")
    parser.add_argument("--force", action="store_true", help="overwrite the picture")
    parser.add_argument(
        "--max-error",
        metavar="E",
        type=_limit,
        help="exit with 1 where a tensor that is not equal has a larger relative error, has NaN or an infinity, or "
        "cannot be compared",
    )
    add_scales(parser)
    add_threads(parser)


def _limit(text: str) -> float:
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not limit >= 0:
        raise argparse.ArgumentTypeError(f"expected a number from 0 up, got {text!r}")
    return limit


def run(args: argparse.Namespace) -> int:
    """Compare, and print the table or all of it as JSON."""
    if args.plot is not None:
        _check_plot(args.plot, args.force)
    with opened(args.a, args) as a, opened(args.b, args) as b:
        names = set(chosen_names(a, b, args.names))
        total = sum(info.nbytes for file in (a, b) for name, info in file.infos.items() if name in names)
        with progress("comparing", total) as advance:
            before = 0

            def show(done: int, total: int, name: str) -> None:
                nonlocal before
                advance(done - before, name)
                before = done

            found = cbquant.compare(
                a, b, block=args.block, names=args.names, threads=args.threads, progress=show
            ).ordered(args.sort)
    if args.plot is not None:
        found.plot(args.plot)
    beyond = [] if args.max_error is None else [row for row in found if not row.is_within(args.max_error)]
    if args.json:
        report = found.to_dict()
        if args.max_error is not None:
            report |= {"max_error": args.max_error, "beyond": [row.name for row in beyond]}
        print_json(report)
    else:
        _print(found, args.max_error, len(beyond))
    return 1 if beyond else 0


def _check_plot(path: Path, force: bool) -> None:
    """Raise where no picture can be written there, before there is any work."""
    from cbquant._compare._plot import figure_class

    refuse_overwriting([path], force)
    if not path.parent.is_dir():
        raise CommandError(f"{path.parent}: expected a folder")
    try:
        kinds = figure_class()().canvas.get_supported_filetypes()
    except ImportError as error:
        raise CommandError(str(error)) from None
    if path.suffix[1:].lower() not in kinds:
        raise CommandError(f"{path}: expected a suffix such as .png, .svg, .pdf, got {path.suffix!r}")


def _print(found: Comparison, limit: float | None, beyond: int) -> None:
    print_table(_COLUMNS, map(cells, found))
    print(printable(f"{found.b} against {found.a}: {found.summary()}"))
    if limit is not None:
        print(f"{beyond:,} of {len(found):,} tensors beyond a relative error of {limit:g}, or not compared")
