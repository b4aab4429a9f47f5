"""What a process's first call costs more than its second: section D, of the formats that build tables.

``python -m benchmarks.quantize.first_call FORMAT`` is such a process: it prints seconds, of the first call on one
block less the second.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import cbquant
from benchmarks.plan import Done
from benchmarks.quantize import targets
from benchmarks.quantize.plan import Plan
from benchmarks.report import Row, judge
from cbquant import _formats

_ROOT = Path(__file__).resolve().parents[2]


def first_calls(plan: Plan, done: Done) -> list[Row]:
    """A row for each iq format, in milliseconds: the median of fresh processes."""
    rows: list[Row] = []
    for fmt in plan.formats:
        if fmt.name.startswith("iq"):
            seconds = [_fresh(fmt.name) for _ in range(plan.processes)]
            figure = 1e3 * statistics.median(seconds)
            rows.append(
                {
                    "format": fmt.name,
                    "group": f"{plan.processes} fresh processes",
                    "variant": "ms",
                    "seconds": seconds,
                    "figure": figure,
                    "judged": judge(figure, "<=", targets.FIRST_CALL),
                }
            )
        done(fmt.name)
    return rows


def _fresh(name: str) -> float:
    command = [sys.executable, "-m", "benchmarks.quantize.first_call", name]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RuntimeError(f"{name}: a first call failed: {reason}")
    return float(done.stdout)


def difference(name: str) -> float:
    """Seconds that this process's first call takes longer than the next."""
    fmt = _formats.get(name)
    x = np.random.default_rng(0).standard_normal((1, fmt.elements), np.float32)
    weights = np.ones(fmt.elements, np.float32) if fmt.needs_imatrix else None
    encode = cbquant.quantize  # its module is loaded here, not in the call
    times = []
    for _ in range(2):
        begin = time.perf_counter()
        encode(x, name, weights, threads=1)
        times.append(time.perf_counter() - begin)
    return times[0] - times[1]


if __name__ == "__main__":
    print(difference(sys.argv[1]))
