"""The list of formats of planes, as C has it."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from cbquant import _core
from cbquant._table import TableList

_SUFFIX = "_planes"


class PlanesFormat(NamedTuple):
    """What is known about a format of planes.

    Attributes
    ----------
    name : str
        The name; a trailing ``_planes`` may be left off, or added.
    code : str
        What a code is: a kind of `cbquant.fp8`, `cbquant.e2m1` .., ``"mxint8"``, or ``"table"`` for a table of its own.
    bits : int
        Bits of a code.
    always_packed : bool
        Whether codes always share bytes; others do on request, if at all.
    high_first : bool
        Whether the first of two codes is in the high nibble.
    group : int
        Elements of a row under one scale; 0 where the caller says it.
    scales : str
        The type of the scales: ``"e8m0"``, ``"e4m3fn"``, ``"tile"`` (numbers or E8M0 for tiles of a matrix) or
        ``"absmax"`` (numbers for runs of the whole tensor).
    integer : bool
        Whether codes are integers, which products in "q8" and "q16" need.
    """

    name: str
    code: str
    bits: int
    always_packed: bool
    high_first: bool
    group: int
    scales: str
    integer: bool

    @property
    def is_flat(self) -> bool:
        """Whether scales belong to runs of the whole tensor and know no rows."""
        return self.scales == "absmax"


class PlanesFormatList(TableList[PlanesFormat]):
    """A list of :class:`PlanesFormat` that prints as a table."""

    head = ("name", "code", "bits", "first nibble", "group", "scales", "integer")

    def cells(self, f: PlanesFormat) -> tuple[str, ...]:
        nibble = "" if f.bits != 4 else "high" if f.high_first else "low"
        group = str(f.group) if f.group else "given"
        return (f.name, f.code, str(f.bits), nibble, group, f.scales, "yes" if f.integer else "")


@cache
def _registry() -> dict[str, PlanesFormat]:
    """The formats, by name without the suffix."""
    found = map(PlanesFormat._make, _core.plane_formats())
    return {f.name.removesuffix(_SUFFIX): f for f in found}


def formats() -> PlanesFormatList:
    """All formats of planes.

    Returns
    -------
    list of PlanesFormat
        It prints as a table.

    Examples
    --------
    >>> import cbquant
    >>> [f.name for f in cbquant.planes.formats() if f.integer]
    ['mxfp4_planes', 'nvfp4_planes', 'mxint8']
    """
    return PlanesFormatList(_registry().values())


def find(name: str) -> PlanesFormat | None:
    """The format of that name, or None."""
    return _registry().get(name.lower().removesuffix(_SUFFIX))


def get(name: str) -> PlanesFormat:
    """The format of that name, with or without ``_planes``; a ValueError names close ones."""
    if not isinstance(name, str):
        raise TypeError(f"fmt: expected the name of a format of planes, got {type(name).__name__}")
    found = find(name)
    if found is None:
        raise ValueError(f"fmt: unknown format of planes {name!r}; {_hint(name)}")
    return found


def _hint(name: str) -> str:
    import difflib

    from cbquant import _formats

    if name.lower() in {f.name for f in _formats.formats()}:
        return f"{name.lower()} is a format of blocks, for cbquant.dequant and cbquant.QuantTensor"
    names = [f.name for f in _registry().values()]
    within = [known for known in names if name.lower().removesuffix("fn") in known]
    close = within or difflib.get_close_matches(name.lower(), names, n=4, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else "cbquant.planes.formats() lists them"
