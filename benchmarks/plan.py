"""What to measure, and how thoroughly: what all benchmarks have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cbquant
from cbquant._formats import Format

#: Called when a format is done, with its name.
Done = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """A benchmark adds its sizes."""

    formats: tuple[Format, ...]
    threads: tuple[int, ...] = (1, 2)
    rounds: int = 21
    #: What a sample of a short call lasts at least.
    sample_seconds: float = 1e-3

    def describe(self) -> dict[str, Any]:
        """The plan as a report has it."""
        return {
            "formats": [fmt.name for fmt in self.formats],
            "threads": self.threads,
            "rounds": self.rounds,
            "sample_seconds": self.sample_seconds,
        }


def block_formats() -> tuple[Format, ...]:
    """The formats of blocks."""
    return tuple(fmt for fmt in cbquant.formats() if fmt.kind != "plain")


def block_formats_first() -> tuple[Format, ...]:
    """All formats, the plain ones last."""
    return block_formats() + tuple(fmt for fmt in cbquant.formats() if fmt.kind == "plain")
