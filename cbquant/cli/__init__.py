"""The command line, ``python -m cbquant``: one module a command, and what they share.

A command's module has a docstring (its ``--help``), ``configure(parser)``, which adds its arguments, and
``run(args)``, which returns the exit code. Results go to stdout, everything else to stderr.

Exit codes: 0 all well, 1 a finding (``validate`` met damaged blocks, ``compare`` an error beyond ``--max-error``,
``gpucheck`` a wrong result), 2 wrong usage or bad input, told in one line on stderr, 70 a defect of the program, 130
interrupted, 141 the reader of stdout went away, 143 terminated.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from inspect import cleandoc
from types import ModuleType

from cbquant.cli import bench, compare, dequant, formats, gpucheck, info, inspect, quantize, validate
from cbquant.cli.arguments import CommandError, Parser, add_json
from cbquant.cli.output import printable
from cbquant.cli.process import Terminated, discard, streams, terminable
from cbquant.files._path import naming

_COMMANDS: tuple[ModuleType, ...] = (inspect, dequant, quantize, compare, validate, bench, info, formats, gpucheck)

_FINDINGS = (
    "exit codes: 0 all well, 1 a finding (validate, compare --max-error, gpucheck), 2 wrong usage or bad input, "
    "130 interrupted, 143 ended by SIGTERM, 70 a defect of cbquant"
)


def _parser() -> Parser:
    from cbquant import __version__

    parser = Parser(prog="python -m cbquant", description="Block-quantized weights.", epilog=_FINDINGS)
    parser.add_argument("--version", action="version", version=f"cbquant {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in _COMMANDS:
        name, text = module.__name__.rpartition(".")[2], cleandoc(module.__doc__ or "")
        command = commands.add_parser(name, help=_summary(text), description=text, epilog=_FINDINGS)
        module.configure(command)
        add_json(command)
        command.set_defaults(run=module.run)
    return parser


def _summary(text: str) -> str:
    """The first sentence, as a command's line in the list of commands."""
    sentence = text.partition("\n\n")[0].replace("\n", " ").rstrip(".")
    return sentence[0].lower() + sentence[1:]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; ``--help`` and ``--version`` raise SystemExit(0).

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; the default is those of the process.

    Examples
    --------
    >>> from cbquant.cli import main
    >>> main(["info", "--json"])  # doctest: +ELLIPSIS
    {
      "version": ...
    }
    0
    """
    with streams():
        try:
            with terminable():
                code = _run(argv)
                _flush()
            return code
        except BrokenPipeError:
            discard(sys.stdout)
            discard(sys.stderr)
            return 141
        except KeyboardInterrupt:
            return _fail("interrupted", 130)
        except Terminated:
            return _fail("terminated", 143)
        except (CommandError, OSError, ValueError, MemoryError) as error:
            return _fail(f"error: {_describe(error)}", 2)
        except Exception:
            # A defect. Python's own exit code for it, 1, would read as a finding.
            return _report(traceback.format_exc(), os.EX_SOFTWARE)


def _flush() -> None:
    try:
        with naming("stdout"):
            sys.stdout.flush()
    except OSError:
        discard(sys.stdout)
        raise


def _run(argv: Sequence[str] | None) -> int:
    args, rest = _parser().parse_known_args(argv)
    # argparse ends a list of names at the first option: names behind the option come back as unknown.
    if rest and (any(word.startswith("-") for word in rest) or not hasattr(args, "names")):
        raise CommandError(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        args.names += rest
    code: int = args.run(args)
    return code


def _fail(text: str, code: int) -> int:
    return _report(f"cbquant: {printable(text, sys.stderr)}\n", code)


def _report(text: str, code: int) -> int:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:  # no one can be told: the exit code has to do
        discard(sys.stderr)
    return code


def _describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        # Of the two names of a renaming the second is the one that the user gave.
        name = error.filename if error.filename2 is None else error.filename2
        return error.strerror if name is None else f"{os.fsdecode(name)}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"out of memory: {error}" if str(error) else "out of memory"
    return str(error)
