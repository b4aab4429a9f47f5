"""Schemes that are told by their names but not decoded: their tensors come as they are stored, with a note."""

from __future__ import annotations

from collections.abc import Callable

from cbquant.files.conventions._parts import Convention, Parts
from cbquant.files.conventions._recipe import Note, Recipe


def _beside(other: str, codes: str, sentence: str) -> Callable[[Parts, str], Recipe | Note | None]:
    """A note on ``stem + codes`` where ``stem + other`` is there too."""

    def read(parts: Parts, stem: str) -> Recipe | Note | None:
        if parts.find(stem + codes) is None or parts.find(stem + other) is None:
            return None
        return Note(stem + codes, sentence)

    return read


CONVENTIONS = (
    Convention(".SCB", _beside(".SCB", ".weight", "8-bit weights of bitsandbytes, which are not known")),
    Convention(".qweight", _beside(".scales", ".qweight", "packed integers of GPTQ or AWQ, which are not known")),
)
