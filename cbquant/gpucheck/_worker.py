"""One section in a process of its own: ``python -m cbquant.gpucheck._worker SECTION RESULTS --until SECONDS``."""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from cbquant import _formats
from cbquant.gpucheck._items import NOT_RUN, Context, NotRun, read, run, writer

#: Exit code of a process that has left CUDA unusable: another one goes on with the next item.
BROKEN = 3
MODULES = {
    "build": "_build",
    "ceilings": "_ceilings",
    "instructions": "_instructions",
    "correctness": "_correctness",
    "operators": "_operators",
    "graphs": "_graphs",
    "sanitizer": "_sanitizer",
    "benchmarks": "_benchmarks",
}


def main(argv: Sequence[str]) -> int:
    """Run the items that RESULTS does not have yet."""
    parser = argparse.ArgumentParser(prog="python -m cbquant.gpucheck._worker")
    parser.add_argument("section", choices=list(MODULES))
    parser.add_argument("results", type=Path)
    parser.add_argument("--until", type=float, required=True, help="as time.time() tells it")
    parser.add_argument("--formats", help="names with commas between them (default: all)")
    parser.add_argument("--small", action="store_true", help="fewer and smaller cases")
    args = parser.parse_args(argv)
    faulthandler.enable()
    context = Context(args.until, small=args.small)
    if args.formats:
        context.formats = [_formats.get(name) for name in args.formats.split(",")]
    module = importlib.import_module(f"cbquant.gpucheck.{MODULES[args.section]}")
    write = writer(args.results)
    try:
        return (
            0 if run(module.items(context), context, write, {line["item"] for line in read(args.results)}) else BROKEN
        )
    except NotRun as error:
        write({"item": args.section, "state": NOT_RUN, "text": str(error)})
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
