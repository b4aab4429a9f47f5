"""What a command needs from the process that it runs in: streams to print to, and a way to end early but cleanly."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, TextIO


class Terminated(BaseException):
    """SIGTERM came; no Exception, for the same reason as KeyboardInterrupt: nothing on the way may swallow it."""


@contextmanager
def streams() -> Iterator[None]:
    """The null device as stdout and stderr where the process was started without them (``>&-``).

    Python has None in their place then, and ``print(..., file=None)`` would send errors to stdout.
    """
    with contextlib.ExitStack() as stack:
        if sys.stdout is None:
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(_null())))
        if sys.stderr is None:
            stack.enter_context(contextlib.redirect_stderr(stack.enter_context(_null())))
        yield


def _null() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8", errors="backslashreplace")


@contextmanager
def terminable() -> Iterator[None]:
    """Raise `Terminated` at SIGTERM, so that files half written are removed.

    A handler of the application's own stays, and so does a SIGTERM that is ignored. Only the main thread can
    handle signals: elsewhere nothing changes.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt the cleaning up
    raise Terminated


def discard(stream: TextIO) -> None:
    """Let what is still buffered go nowhere, so that the interpreter's last flush does not fail again."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
