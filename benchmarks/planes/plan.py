"""What to measure, and how thoroughly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cbquant
from benchmarks import plan
from benchmarks.matmul.plan import shape_word
from cbquant.planes import PlanesFormat

#: Elements of a row of the large matrix, and what its float32 take at least and at most.
_COLUMNS = 4096
_LEAST_BYTES, _MOST_BYTES = 128 << 20, 1 << 30


def past_the_last_cache() -> tuple[int, int]:
    """The shape of a matrix whose float32 do not fit the last cache, of at most 1 GiB."""
    nbytes = _LEAST_BYTES
    while nbytes <= cbquant.info()["last_cache_bytes"] and nbytes < _MOST_BYTES:
        nbytes *= 2
    return nbytes // 4 // _COLUMNS, _COLUMNS


@dataclass(frozen=True)
class Plan(plan.Plan):
    """`formats` are those of planes."""

    formats: tuple[PlanesFormat, ...] = ()  # type: ignore[assignment]
    rounds: int = 9
    #: The matrix of all sections.
    shape: tuple[int, int] = (4096, 4096)
    #: Another one to decode, and its rounds: a call takes ten times as long.
    large: tuple[int, int] = (0, 0)
    large_rounds: int = 3
    #: What is decoded next to other libraries, which return new arrays: in cache, and of a size that malloc keeps when
    #: it is freed.
    peer_shapes: tuple[tuple[int, int], ...] = ((64, 4096), (1024, 4096))
    #: Elements that codecs decode and encode.
    elements: int = 1 << 22
    #: Rows of x.
    ms: tuple[int, ...] = (1, 4, 16, 128)
    #: Up to so many of them, weights come from memory; above, a call is long, and one of them is a sample.
    cold_m: int = 16
    product_rounds: int = 7
    #: Rows to encode.
    rows: int = 512

    def at_most(self, rounds: int) -> int:
        """So many rounds, or fewer where the plan has fewer."""
        return min(rounds, self.rounds)

    def describe(self) -> dict[str, Any]:
        """The plan as a report has it."""
        own: dict[str, Any] = {
            "shape": shape_word(*self.shape),
            "large": shape_word(*self.large),
            "elements": self.elements,
        }
        own |= {"peer_shapes": [shape_word(*shape) for shape in self.peer_shapes]}
        counts = {"large_rounds": self.at_most(self.large_rounds), "product_rounds": self.at_most(self.product_rounds)}
        return super().describe() | own | counts | {"m": self.ms, "rows": self.rows}


def usual() -> Plan:
    """The plan of this machine."""
    return Plan(formats=tuple(cbquant.planes.formats()), large=past_the_last_cache())
