"""Numbers in words, as tables and pages have them."""

from __future__ import annotations


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
