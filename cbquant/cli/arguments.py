"""The parser of the command line and the kinds of arguments that commands share."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any, NoReturn

import cbquant
from cbquant import _arguments, _formats
from cbquant._formats import Format
from cbquant.files import File

_DIGITS = 18


class CommandError(Exception):
    """Wrong usage or bad input: its text is the one line that the user sees."""


class Parser(argparse.ArgumentParser):
    """argparse, with errors as exceptions and help texts left in their lines."""

    def __init__(self, **options: Any) -> None:
        # An abbreviation that works today would end with the next option that begins like it.
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see {self.prog} --help)")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``, which every command has."""
    text = "print JSON and nothing else on stdout; NaN and infinities are null"
    parser.add_argument("--json", action="store_true", help=text)


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Add ``--threads``."""
    parser.add_argument(
        "--threads",
        type=thread_count,
        metavar="N",
        help="threads to decode with (default: CBQUANT_NUM_THREADS, else the cores at hand)",
    )


def add_scales(parser: argparse.ArgumentParser) -> None:
    """Add what `cbquant.open` has to be told of FP8 in safetensors."""
    parser.add_argument(
        "--tile",
        type=tile,
        metavar="ROWS,COLUMNS",
        default=(128, 128),
        help="rows and columns under one scale of FP8, which no file tells; 'all' is all of them (default: 128,128)",
    )
    parser.add_argument("--unscaled-fp8", action="store_true", help="take FP8 that has no scales for numbers")


def opened(path: str, args: argparse.Namespace) -> File:
    """The file, opened as `add_scales` lets the user say."""
    return cbquant.open(path, tile=args.tile, unscaled_fp8=args.unscaled_fp8)


def tile(text: str) -> tuple[int | None, int | None]:
    """Two numbers from 1 up, or "all".

    >>> tile("32,32"), tile("1,all")
    ((32, 32), (1, None))
    """
    parts = [None if word == "all" else positive(word) for word in text.split(",")]
    if len(parts) != 2:
        raise argparse.ArgumentTypeError(f"expected rows and columns with a comma between them, got {text!r}")
    return parts[0], parts[1]


def thread_count(text: str) -> int:
    """A number of threads that the library accepts.

    >>> thread_count("4")
    4
    """
    try:
        return _arguments.check_threads(positive(text))
    except ValueError as error:
        # The option's name stands before the message, in place of the library's argument.
        raise argparse.ArgumentTypeError(str(error).removeprefix("threads: ")) from None


def block_format(text: str) -> Format:
    """The format of that name.

    >>> block_format("Q8_0").name
    'q8_0'
    """
    try:
        return _formats.get(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("fmt: ")) from None


def block_formats(text: str) -> list[Format]:
    """The formats of names with commas between them.

    >>> [fmt.name for fmt in block_formats("q8_0,f16")]
    ['q8_0', 'f16']
    """
    return [block_format(name) for name in text.split(",")]


def file_path(text: str) -> Path:
    """The name of a file or a folder, which an empty text is not."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got an empty one")
    return Path(text)


def positive(text: str) -> int:
    """A whole number from 1 up.

    >>> positive("64")
    64
    """
    if not re.fullmatch("0*[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, got {text!r}")
    return _whole(text)


def shape(text: str) -> tuple[int, ...]:
    """Dimensions in elements, outermost first.

    >>> shape("4096,1024"), shape("32")
    ((4096, 1024), (32,))
    """
    if not re.fullmatch("[0-9]+(,[0-9]+)*", text):
        raise argparse.ArgumentTypeError(f"expected whole numbers with commas between them, got {text!r}")
    return tuple(map(_whole, text.split(",")))


def _whole(digits: str) -> int:
    """A number below 10^18, which an integer of 64 bits can hold."""
    if len(digits.lstrip("0")) > _DIGITS:
        shown = digits if len(digits) <= 2 * _DIGITS else f"one of {len(digits):,} digits"
        raise argparse.ArgumentTypeError(f"expected a number of up to {_DIGITS} digits, got {shown}")
    return int(digits.lstrip("0") or "0")
