"""Prove the GPU part on this machine's GPU: build it, check every kernel, measure.

Not yet run on a GPU itself. It takes up to 8 minutes, needs no network, and
wants an NVIDIA GPU; nvcc to build what is not built, torch for speed and CUDA
graphs, compute-sanitizer: what is missing is named, and the rest goes on.
"""

from __future__ import annotations

import argparse

from cbquant.cli.arguments import CommandError, positive
from cbquant.cli.output import note, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--out", metavar="DIR", help="write gpucheck.json, .txt, .png and each section's results there")
    parser.add_argument(
        "--seconds", type=positive, default=470, metavar="N", help="the most that it may take (default: 470)"
    )
    parser.add_argument("--sections", nargs="+", default=[], metavar="NAME", help="some of the sections (default: all)")


def run(args: argparse.Namespace) -> int:
    """Run the sections and print what came of them; 1 where something is wrong, 2 where there is no GPU."""
    from cbquant.gpucheck import _command, _report
    from cbquant.gpucheck._probe import NoGpu, find_gpu
    from cbquant.gpucheck._sections import SECTIONS

    names = [section.name for section in SECTIONS]
    for name in args.sections:
        if name not in names:
            raise CommandError(f"--sections: expected {', '.join(names)}, got {name!r}")
    try:
        gpu = find_gpu()
    except NoGpu as error:
        note(f"error: {error}; gpucheck needs an NVIDIA GPU")
        return 2
    note(f"{gpu.name}: up to {args.seconds} s")
    report = _command.check(gpu, args.out, args.seconds, args.sections)
    if args.json:
        print_json(report)
    else:
        _report.show(report)
    return 0 if report["correct"] else 1
