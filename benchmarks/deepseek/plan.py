"""What to measure, and how thoroughly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks import plan

#: The types that operators are measured in next to memory.
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Plan(plan.Plan):
    """Sizes of a prompt and of a few tokens."""

    formats: tuple[Any, ...] = ()
    rounds: int = 11
    tokens: int = 8192
    few_tokens: tuple[int, ...] = (1, 8)
    #: Elements of a token, and of a head.
    columns: int = 4096
    head: int = 512
    experts: int = 256
    #: Of a cache.
    positions: int = 16_384
    #: Scores, and how many of them are chosen.
    choices: tuple[tuple[int, int], ...] = ((64, 8), (256, 32), (1024, 512), (65_536, 512), (1_048_576, 512))
    #: What a copy of memory copies.
    copy_bytes: int = 64 << 20
    #: Operators; empty is all.
    operators: tuple[str, ...] = ()

    def describe(self) -> dict[str, Any]:
        """The plan as a report has it."""
        own = {"tokens": self.tokens, "few_tokens": self.few_tokens, "columns": self.columns, "head": self.head}
        return (
            super().describe()
            | own
            | {"experts": self.experts, "positions": self.positions, "operators": self.operators}
        )
