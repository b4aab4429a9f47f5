"""What a conversion did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cbquant.files._text import quoted

#: Of a long list of tensors this many are named.
_NAMED = 3


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(quoted, names[:_NAMED])) + more


class TensorReport(NamedTuple):
    """A tensor of the new file.

    Attributes
    ----------
    name, shape : str, tuple of int
        As in the source.
    source, format : str
        Its format before and after; the same where its bytes were copied.
    wanted : str
        The format that was chosen for it; another than `format` where its rows are no whole blocks of that.
    bytes_before, bytes_after : int
        Of its data.
    """

    name: str
    shape: tuple[int, ...]
    source: str
    format: str
    wanted: str
    bytes_before: int
    bytes_after: int

    @property
    def elements(self) -> int:
        """The number of weights."""
        return math.prod(self.shape)

    @property
    def is_fallback(self) -> bool:
        """Whether it got another format than was chosen for it."""
        return self.format != self.wanted


class FormatReport(NamedTuple):
    """The tensors of the new file in one format: how many, their weights, their bytes before and after."""

    format: str
    tensors: int
    elements: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True)
class Report:
    """What `quantize_file` did; prints as a table.

    Attributes
    ----------
    source, destination : Path
        The files.
    format : str
        The format that was asked for.
    tensors : tuple of TensorReport
        The tensors of the new file, in its order.
    dropped : tuple of str
        Names of those that a rule left out.
    bytes_before, bytes_after : int
        Of the files.
    seconds : float
        The time that it took.
    resumed : int
        Bytes of tensors that an earlier attempt had finished.
    told : tuple of str
        What the source has notes on (see `cbquant.files.File`), of the tensors of the new file.
    """

    source: Path
    destination: Path
    format: str
    tensors: tuple[TensorReport, ...]
    dropped: tuple[str, ...]
    bytes_before: int
    bytes_after: int
    seconds: float
    resumed: int
    told: tuple[str, ...] = ()

    @property
    def fallbacks(self) -> tuple[TensorReport, ...]:
        """The tensors whose rows are no whole blocks of the format that was chosen for them."""
        return tuple(tensor for tensor in self.tensors if tensor.is_fallback)

    @property
    def formats(self) -> tuple[FormatReport, ...]:
        """The tensors summed by their new format, in the order of their first appearance."""
        groups: dict[str, list[TensorReport]] = {}
        for tensor in self.tensors:
            groups.setdefault(tensor.format, []).append(tensor)
        return tuple(
            FormatReport(
                fmt,
                len(group),
                sum(tensor.elements for tensor in group),
                sum(tensor.bytes_before for tensor in group),
                sum(tensor.bytes_after for tensor in group),
            )
            for fmt, group in groups.items()
        )

    def notes(self) -> list[str]:
        """A line for each kind of fallback, one for the tensors that were left out, and some of what was told."""
        kinds: dict[tuple[str, str, int], list[str]] = {}
        for tensor in self.fallbacks:
            kinds.setdefault((tensor.format, tensor.wanted, tensor.shape[-1]), []).append(tensor.name)
        lines = [
            f"{fmt} in place of {wanted}, because of rows of {columns}: {_names(names)}"
            for (fmt, wanted, columns), names in kinds.items()
        ]
        if self.dropped:
            lines.append(f"left out: {_names(self.dropped)}")
        more = len(self.told) - _NAMED
        return [*lines, *self.told[:_NAMED], *([f"and {more} notes more"] if more > 0 else [])]

    def __repr__(self) -> str:
        rows: list[tuple[str, ...]] = [("format", "tensors", "weights", "bytes before", "bytes after")]
        rows += [(f.format, *(f"{number:,}" for number in f[1:])) for f in self.formats]
        rows.append(("file", f"{len(self.tensors):,}", "", f"{self.bytes_before:,}", f"{self.bytes_after:,}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
        return "\n".join([f"{self.destination}: {self.format}, in {self.seconds:.1f} s", *lines, *self.notes()])
