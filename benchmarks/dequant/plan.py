"""What to measure, and how thoroughly."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks import plan


@dataclass(frozen=True)
class Plan(plan.Plan):
    """Sizes are those of the output, in bytes: whole blocks of every format."""

    #: Larger than what the caches of a core hold, and larger than malloc keeps when it is freed.
    memory_bytes: int = 64 << 20
    #: More than a first-level cache, and with its blocks less than a second-level one.
    cache_bytes: int = 256 << 10
    #: A typical weight matrix of a small model.
    matrix_bytes: int = 8 << 20
