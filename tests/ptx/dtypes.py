"""PTX's scalar types, and how the bits of a register read as NumPy values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Type(NamedTuple):
    """One PTX type: `.u32`, `.bf16x2`, ... `dtype` is what a register's bits are viewed as.

    bf16 has no NumPy dtype and the packed pairs are two values: both are carried as unsigned bits, and the
    floating-point instructions widen them themselves (see rounding.py).
    """

    name: str
    kind: str  # "u" unsigned, "s" signed, "b" untyped bits, "f" floating point, "p" predicate
    bits: int
    dtype: np.dtype
    packed: str | None = None  # the element type of a pair (`f16` for `f16x2`)

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def is_integer(self) -> bool:
        return self.kind in "usb"


def _make_types() -> dict[str, Type]:
    types = [Type("pred", "p", 1, np.dtype(np.bool_))]
    for bits in (8, 16, 32, 64):
        types += [Type(f"{kind}{bits}", kind, bits, np.dtype(f"u{bits // 8}")) for kind in "ub"]
        types.append(Type(f"s{bits}", "s", bits, np.dtype(f"i{bits // 8}")))
    types += [Type(f"f{bits}", "f", bits, np.dtype(f"f{bits // 8}")) for bits in (16, 32, 64)]
    types.append(Type("bf16", "f", 16, np.dtype(np.uint16)))
    types += [Type(f"{half}x2", "f", 32, np.dtype(np.uint32), half) for half in ("f16", "bf16")]
    return {t.name: t for t in types}


TYPES = _make_types()


def unsigned(bits: int) -> np.dtype:
    """The dtype that holds the bits of a register of this width; a predicate is a bool."""
    return np.dtype(np.bool_) if bits == 1 else np.dtype(f"u{bits // 8}")


def wider(t: Type) -> Type:
    """The type of twice the width: what `mul.wide` gives."""
    return TYPES[f"{t.kind}{2 * t.bits}"]
