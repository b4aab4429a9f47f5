"""The list of formats, as the C registry has it."""

from __future__ import annotations

import enum
import re
from functools import cache
from typing import NamedTuple

from cbquant import _core
from cbquant._table import TableList


class Format(NamedTuple):
    """What is known about a format.

    Attributes
    ----------
    name : str
        Lower-case GGUF name.
    tag : int
        Type number in a GGUF file.
    elements, bytes : int
        Elements and bytes of a block.
    bits_per_weight : float
        ``8 * bytes / elements``.
    kind : str
        ``"linear"`` (codes minus an offset), ``"table"`` (a codebook of 16), ``"signed"`` (signed codes, grids) or
        ``"plain"`` (one element a block).
    group : int
        Elements under one scale.
    has_min : bool
        Whether a minimum is subtracted.
    needs_imatrix : bool
        Whether the encoder needs an importance matrix.
    doc : str
        One line about it.
    """

    name: str
    tag: int
    elements: int
    bytes: int
    bits_per_weight: float
    kind: str
    group: int
    has_min: bool
    needs_imatrix: bool
    doc: str


class FormatList(TableList[Format]):
    """A list of :class:`Format` that prints as a table."""

    head = ("name", "tag", "elements", "bytes", "bits/weight", "kind", "group", "min", "imatrix", "doc")

    def cells(self, f: Format) -> tuple[str, ...]:
        flags = ("yes" if f.has_min else "", "needed" if f.needs_imatrix else "")
        numbers = (str(f.tag), str(f.elements), str(f.bytes), f"{f.bits_per_weight:.4g}")
        return (f.name, *numbers, f.kind, str(f.group), *flags, f.doc)


@cache
def _registry() -> dict[str, Format]:
    found = {}
    for name, tag, elements, size, kind, group, has_min, needs_imatrix, doc in _core.formats():
        bits = 8 * size / elements
        found[name] = Format(name, tag, elements, size, bits, kind, group, has_min, needs_imatrix, doc)
    return dict(sorted(found.items(), key=lambda item: item[1].tag))


@cache
def _by_tag() -> dict[int, Format]:
    return {f.tag: f for f in _registry().values()}


def formats() -> FormatList:
    """All formats that cbquant decodes, in the order of their GGUF type numbers.

    Returns
    -------
    FormatList
        A list of :class:`Format`; it prints as a table.

    Examples
    --------
    >>> import cbquant
    >>> [f.name for f in cbquant.formats() if f.kind == "table"]
    ['iq4_nl', 'iq4_xs', 'mxfp4', 'nvfp4']
    """
    return FormatList(_registry().values())


# What llama.cpp calls these are several formats in one file.
_MIXTURE = re.compile(r"(?P<format>q[2-6]_k|iq[1-4]_\w+?)_[sml]l?")


def get(name: str) -> Format:
    """The format of that name (upper case and gguf's enumeration are accepted); a ValueError lists close names."""
    if isinstance(name, enum.Enum):
        name = name.name
    if not isinstance(name, str):
        raise TypeError(f"fmt: expected the name of a format, got {type(name).__name__}")
    found = _registry().get(name) or _registry().get(name.lower())
    if found:
        return found
    mixture = _MIXTURE.fullmatch(name.lower())
    if mixture and mixture["format"] in _registry():
        hint = f"a mixture of formats; {mixture['format']} is one, convert.quantize_file takes rules for more"
        raise ValueError(f"fmt: unknown format {name!r}; {hint}")
    import difflib

    from cbquant.planes import _formats as planes  # here, because few need it

    if planes.find(name):
        hint = "it is one of planes: cbquant.planes.dequant, QuantTensor.from_planes"
        raise ValueError(f"fmt: unknown format of blocks {name!r}; {hint}")
    close = difflib.get_close_matches(name.lower(), _registry(), n=4, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "cbquant.formats() lists them"
    raise ValueError(f"fmt: unknown format {name!r}; {hint}")


def by_tag(tag: int) -> Format | None:
    """The format of a GGUF type number, or None."""
    return _by_tag().get(tag)
