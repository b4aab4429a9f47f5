"""How text that a file gives is shown in messages and tables."""

from __future__ import annotations

from typing import NamedTuple

#: Characters of a name that are shown.
SHOWN_LENGTH = 100


def quoted(text: str) -> str:
    """`text` in quotes, cut where it is long; what would break a line or a terminal is escaped."""
    return repr(text if len(text) <= SHOWN_LENGTH else text[: SHOWN_LENGTH - 1] + "…")


class Subject(NamedTuple):
    """What a message is about; put into words only where there is a message."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {quoted(self.name)}"
