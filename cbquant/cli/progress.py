"""How far a long command is, on stderr where that is a terminal; nothing elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cbquant.cli.output import is_terminal, printable

#: Called with the work done since the last call and with what comes next.
Advance = Callable[[int, str], None]

_SECONDS_BETWEEN_LINES = 0.1


@contextmanager
def progress(title: str, total: int) -> Iterator[Advance]:
    """Show how much of `total` (bytes to write or read) is done; rich draws a bar where it is installed.

    >>> with progress("decoding", 100) as advance:
    ...     advance(40, "blk.0.attn_q.weight")
    """
    if not is_terminal(sys.stderr):
        yield lambda done, label: None
        return
    show = _bar if _has_rich() else _line
    with show(title, total) as advance:
        yield advance


def _has_rich() -> bool:
    try:
        import rich.progress  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def _line(title: str, total: int) -> Iterator[Advance]:
    """One line, written over and over, gone at the end."""
    done, last, width = 0, 0.0, 0
    begin = time.monotonic()

    def advance(more: int, label: str) -> None:
        nonlocal done, last, width
        done += more
        now = time.monotonic()
        if now - last < _SECONDS_BETWEEN_LINES:
            return
        last = now
        room = shutil.get_terminal_size().columns - 1
        left = _time((now - begin) * (total - done) / done) if done else "-:--"
        text = f"{title} {100 * done // max(total, 1):3d} %, {left} left  {printable(label, sys.stderr)}"[:room]
        sys.stderr.write("\r" + text.ljust(width))
        sys.stderr.flush()
        width = len(text)

    try:
        yield advance
    finally:
        sys.stderr.write("\r" + " " * width + "\r" if width else "")
        sys.stderr.flush()


def _time(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> _time(75.4), _time(3600)
    ('1:15', '1:00:00')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@contextmanager
def _bar(title: str, total: int) -> Iterator[Advance]:
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn(title),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TransferSpeedColumn(),
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.description}", markup=False),
    )
    with rich.Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda more, label: bar.update(task, advance=more, description=printable(label, sys.stderr))
