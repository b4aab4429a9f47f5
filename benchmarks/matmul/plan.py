"""What to measure, and how thoroughly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks import plan
from cbquant._products import PRECISIONS

#: N and K of weights: of a model of 7 billion parameters, the attention's and the largest of the feed-forward's.
SHAPES = ((4096, 4096), (14336, 4096))
#: Rows of x.
ROWS = (1, 2, 3, 4, 8, 16, 32, 64, 128, 512)
MODES = PRECISIONS


@dataclass(frozen=True)
class Plan(plan.Plan):
    """The default leaves out what has no target and what would take hours."""

    rounds: int = 5
    sample_seconds: float = 0.02
    shapes: tuple[tuple[int, int], ...] = SHAPES[:1]
    ms: tuple[int, ...] = (1, 2, 4, 8, 16, 64, 512)
    modes: tuple[str, ...] = ("f32", "q8")
    #: Names of peers; the default is all that are installed.
    peers: tuple[str, ...] | None = None
    #: Up to so many rows of x, the weights come from memory.
    cold_m: int = 16
    #: The rows of x at which products are compared with what arithmetic can do at most.
    peak_ms: tuple[int, ...] = (64, 512)
    #: Above so many rows of x a call is long: one of them is a sample, and half the rounds are enough.
    short_m: int = 64

    def rounds_at(self, m: int) -> int:
        """Samples of each candidate."""
        return self.rounds if m <= self.short_m else max(2, (self.rounds + 1) // 2)

    def sample_seconds_at(self, m: int) -> float:
        """What a sample lasts at least."""
        return self.sample_seconds if m <= self.short_m else 0.0

    def describe(self) -> dict[str, Any]:
        """The plan as a report has it."""
        own = {"shapes": [shape_word(*shape) for shape in self.shapes], "m": self.ms, "modes": self.modes}
        return super().describe() | own


def shape_word(n: int, k: int) -> str:
    """N and K in a word.

    >>> shape_word(14336, 4096)
    '14336x4096'
    """
    return f"{n}x{k}"
