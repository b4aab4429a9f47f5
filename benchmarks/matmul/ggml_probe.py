"""Whether a build of ggml works on this processor: ``python -m benchmarks.matmul.ggml_probe PACKAGE ARRANGEMENT``.

A build for other instructions ends the process, and so does one whose compiler got the setting up of AMX wrong. This is
the process to end.
"""

from __future__ import annotations

import functools
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import cbquant
from benchmarks.matmul import ggml
from benchmarks.matmul.weights import Packed, aligned, rows_of_x

_ROOT = Path(__file__).resolve().parents[2]
# Whole blocks of every format, and x of a row, of a few, and of more than a tile.
_N, _K = 64, 512
_ROWS = (1, 5, 64)


@functools.cache
def failure(distribution: str, arrangement: str) -> str:
    """Why products with weights in this arrangement cannot be made, or nothing where they can."""
    command = [sys.executable, "-m", "benchmarks.matmul.ggml_probe", distribution, arrangement]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode < 0:
        return f"ends the process with {signal.Signals(-done.returncode).name}"
    return (done.stderr.strip().splitlines() or ["fails"])[-1] if done.returncode else ""


def main(distribution: str, arrangement: str) -> None:
    """Multiply with weights of every format that can be arranged so."""
    for fmt in cbquant.formats():
        with ExitStack() as stack:
            operand = ggml.arranged(distribution, arrangement, Packed(fmt, _N, _K), stack)
            if operand:
                for m in _ROWS:
                    operand.calls(rows_of_x(m, _K), aligned(m, _N), 2)[0]()


if __name__ == "__main__":
    main(*sys.argv[1:])
