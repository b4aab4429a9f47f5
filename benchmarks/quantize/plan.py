"""What to measure, and how thoroughly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks import plan
from benchmarks.quantize.inputs import DISTRIBUTIONS


@dataclass(frozen=True)
class Plan(plan.Plan):
    """Elements of a row, and how many rows there are."""

    sample_seconds: float = 2e-3
    k: int = 4096
    distributions: tuple[str, ...] = tuple(DISTRIBUTIONS)
    #: With one thread there are as many rows as ggml encodes in so long (some of its encoders reach 0.9 million
    #: elements a second), within these limits: a few to see more than one, and no more than a cache holds.
    peer_seconds: float = 10e-3
    rows: tuple[int, int] = (2, 64)
    #: For several threads: enough for all of them.
    many_rows: int = 1024
    #: Fresh processes that make a first call.
    processes: int = 7

    def describe(self) -> dict[str, Any]:
        """The plan as a report has it."""
        own = {"k": self.k, "distributions": self.distributions, "many_rows": self.many_rows}
        return super().describe() | own | {"processes": self.processes}
