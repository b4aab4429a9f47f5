"""Planes to decode and to multiply with."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cbquant
from benchmarks.blocks import ColdCopies
from cbquant import planes
from cbquant.planes import PlanesFormat

# So many rows are drawn and encoded; a matrix repeats them. Two rows of tiles of fp8.
_POOL = 256
_LINE = 64


class Case(NamedTuple):
    """A format, and of those whose codes may share bytes whether they do."""

    fmt: PlanesFormat
    packed: bool = False

    @property
    def name(self) -> str:
        """As a table has it."""
        return f"{self.fmt.name}, packed" if self.packed else self.fmt.name


def cases(formats: Iterable[PlanesFormat]) -> list[Case]:
    """All cases of these formats.

    >>> [case.name for case in cases(cbquant.planes.formats()) if "6" in case.name]
    ['mxfp6_e3m2', 'mxfp6_e3m2, packed', 'mxfp6_e2m3', 'mxfp6_e2m3, packed']
    """
    return [Case(fmt, packed) for fmt in formats for packed in ((False, True) if fmt.bits == 6 else (False,))]


class Stored:
    """Planes ``[n, k]`` of normally distributed numbers, as a model's file has them: read once, from memory.

    Attributes
    ----------
    cold : ColdCopies
        Each copy is the codes, and from a 64-byte boundary on the scales.
    copies : list of (codes, scales)
        Views of them.
    options : dict
        What `cbquant.planes.dequant` takes beside them.
    """

    def __init__(self, case: Case, n: int, k: int) -> None:
        self.case, self.n, self.k = case, n, k
        codes, scales, factor = _draw(case, n, k)
        self.options: dict[str, Any] = {"packed": True} if case.packed else {}
        self.options |= {"shape": (n, k)} if case.fmt.is_flat else {}
        self.options |= {} if factor is None else {"global_scale": factor}
        begin = -(-codes.nbytes // _LINE) * _LINE
        memory = np.zeros(begin + scales.nbytes, np.uint8)
        memory[: codes.nbytes] = codes.reshape(-1)
        memory[begin:] = scales.reshape(-1).view(np.uint8)
        self.cold = ColdCopies(memory)
        self.copies = [
            (copy[: codes.nbytes].reshape(codes.shape), copy[begin:].view(scales.dtype).reshape(scales.shape))
            for copy in self.cold.copies
        ]

    def decode(self, out: NDArray[Any], dtype: str, threads: int) -> None:
        """Decode the copy that was used longest ago to all of `out`; uint16 stands for bfloat16."""
        codes, scales = self.copies[self.cold.turns.next()]
        planes.dequant(
            self.case.fmt.name,
            codes,
            scales,
            dtype=dtype,
            out=out.reshape(self._shape),
            threads=threads,
            **self.options,
        )

    @property
    def _shape(self) -> tuple[int, int]:
        return self.n, self.k

    @cached_property
    def tensors(self) -> list[cbquant.QuantTensor]:
        """A tensor of each copy."""
        name = self.case.fmt.name
        return [cbquant.QuantTensor.from_planes(name, *copy, **self.options) for copy in self.copies]

    @cached_property
    def floats(self) -> NDArray[np.float32]:
        """The decoded matrix, to compare with."""
        return self.tensors[0].dequant()


def _draw(case: Case, n: int, k: int) -> planes.Planes:
    rows = _POOL if n % _POOL == 0 else n
    x = np.random.default_rng([n, k]).standard_normal((rows, k), np.float32)
    codes, scales, factor = planes.quantize(x, case.fmt.name, packed=case.packed)
    times = n // rows
    return planes.Planes(np.concatenate([codes] * times), np.concatenate([scales] * times), factor)
