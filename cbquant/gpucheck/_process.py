"""Processes that are ended with all that they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import cbquant


def run(command: Sequence[str], seconds: float, output: IO[Any]) -> int | None:
    """The exit code; None where it had to be stopped."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment(), start_new_session=True
    )
    try:
        return process.wait(max(seconds, 0))
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def environment() -> dict[str, str]:
    """With this package on the path, wherever the command was started."""
    root = str(Path(cbquant.__file__).resolve().parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
