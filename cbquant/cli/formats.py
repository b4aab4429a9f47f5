"""List the formats that are decoded.

elements and bytes are those of a block, group is the number of elements under
one scale, tag the type number in a GGUF file.
"""

from __future__ import annotations

import argparse

import cbquant
from cbquant.cli.output import print_json


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(args: argparse.Namespace) -> int:
    """Print `cbquant.formats()`."""
    formats = cbquant.formats()
    if args.json:
        print_json([fmt._asdict() for fmt in formats])
    else:
        print(formats)
    return 0
