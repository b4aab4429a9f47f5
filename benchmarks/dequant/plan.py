"""What to measure, and how thoroughly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cbquant._formats import Format

#: A result. "format" and "variant" (such as "2 threads") say of what, "figure" is the ratio that counts, "judged"
#: what `targets` makes of it (or None); the other keys are how it came about. JSON can hold it.
Row = dict[str, Any]
#: Called when a format is done, with its name.
Done = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """Sizes are those of the output, in bytes: whole blocks of every format."""

    formats: tuple[Format, ...]
    threads: tuple[int, ...] = (1, 2)
    rounds: int = 21
    #: What a sample of a short call lasts at least.
    sample_seconds: float = 1e-3
    #: Larger than what the caches of a core hold, and larger than malloc keeps when it is freed.
    memory_bytes: int = 64 << 20
    #: More than a first-level cache, and with its blocks less than a second-level one.
    cache_bytes: int = 256 << 10
    #: A typical weight matrix of a small model.
    matrix_bytes: int = 8 << 20


def size_word(nbytes: int) -> str:
    """A size in words.

    >>> size_word(64 << 20), size_word(256 << 10)
    ('64 MiB', '256 KiB')
    """
    return f"{nbytes / 2**20:g} MiB" if nbytes >= 1 << 20 else f"{nbytes / 1024:g} KiB"


def threads_word(count: int) -> str:
    """A number of threads in words.

    >>> threads_word(1), threads_word(2)
    ('1 thread', '2 threads')
    """
    return f"{count} thread{'s' if count > 1 else ''}"
