"""Print version, instruction set and threads in use.

The instruction set can be chosen with CBQUANT_ISA, the threads with CBQUANT_NUM_THREADS.
"""

from __future__ import annotations

import argparse

import cbquant
from cbquant.cli.output import print_json


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(args: argparse.Namespace) -> int:
    """Print `cbquant.info()`."""
    info = cbquant.info()
    if args.json:
        print_json(info)
    else:
        print(info)
    return 0
