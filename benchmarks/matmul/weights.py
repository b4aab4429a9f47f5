"""What x is multiplied with, and what should come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import cbquant
from benchmarks.blocks import ColdCopies, Turns, weight_blocks
from benchmarks.machine import touched_memory
from benchmarks.timing import Call
from cbquant._formats import Format

Floats = NDArray[np.float32]


class Packed:
    """Weights ``[n, k]`` in blocks."""

    def __init__(self, fmt: Format, n: int, k: int) -> None:
        self.fmt, self.n, self.k = fmt, n, k
        self.cold = ColdCopies(weight_blocks(fmt, n * k))
        self.tensors = [cbquant.QuantTensor(copy, fmt.name, (n, k)) for copy in self.cold.copies]

    @cached_property
    def floats(self) -> Floats:
        """The decoded weights, to compare with."""
        return self.tensors[0].dequant()


class Dense:
    """Weights ``[n, k]`` in float32, normally distributed: those of every format, as far as time is concerned."""

    def __init__(self, n: int, k: int) -> None:
        self.n, self.k = n, k
        self.cold = ColdCopies(np.random.default_rng([n, k]).standard_normal((n, k), np.float32))

    @property
    def floats(self) -> Floats:
        return self.cold.copies[0]


class Compressed(Protocol):
    """Weights that cbquant multiplies with: `Packed`, and others of the kind."""

    #: The memory of the copies, and whose turn it is.
    cold: ColdCopies
    tensors: list[cbquant.QuantTensor]


@dataclass(frozen=True)
class Operand:
    """Weights as someone multiplies with them."""

    name: str
    #: For x ``[m, k]``, an array ``[m, n]`` for the product and a number of threads: a call for each copy of weights.
    calls: Callable[[Floats, Floats, int], list[Call]]
    #: Which copy has its turn.
    turns: Turns
    #: The error that the arithmetic may have, as a part of the product (Frobenius norms).
    tolerance: float
    #: The product as an array, made of what a call returns, where it is not in the array that the call was given.
    result: Callable[[Any], Floats] | None = None

    def call(self, x: Floats, out: Floats, threads: int, cold: bool) -> Call:
        """A call that multiplies with the copy whose turn it is, or where `cold` is false with the same one always."""
        calls = self.calls(x, out, threads)
        return (lambda: calls[self.turns.next()]()) if cold else calls[0]

    def error(self, x: Floats, out: Floats, threads: int, expected: Floats) -> float:
        """The distance of a product from what is expected, as a part of that."""
        out.fill(np.nan)
        returned = self.calls(x, out, threads)[0]()
        product = self.result(returned) if self.result else out
        distance = np.linalg.norm(product.astype(np.float64) - expected)
        return float(distance / np.linalg.norm(expected.astype(np.float64)))


def own_operand(weights: Compressed, mode: str) -> Operand:
    """cbquant's."""

    def calls(x: Floats, out: Floats, threads: int) -> list[Call]:
        def multiply(tensor: cbquant.QuantTensor) -> Call:
            return lambda: cbquant.matmul(x, tensor, precision=mode, out=out, threads=threads)

        return [multiply(tensor) for tensor in weights.tensors]

    return Operand(f"cbquant {mode}", calls, weights.cold.turns, TOLERANCES[mode])


#: Of each precision; what the tests hold cbquant to is much less.
TOLERANCES = {"f32": 1e-4, "bf16": 0.02, "q8": 0.03, "q16": 1e-3}


def rows_of_x(m: int, k: int) -> Floats:
    """x ``[m, k]``, normally distributed."""
    x = aligned(m, k)
    x[...] = np.random.default_rng([m, k]).standard_normal((m, k), np.float32)
    return x


def aligned(m: int, k: int) -> Floats:
    """An array ``[m, k]`` at a 64-byte boundary, in memory that was used before."""
    return touched_memory(4 * m * k).view(np.float32).reshape(m, k)
