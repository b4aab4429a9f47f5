"""What products multiply with: weights in blocks, or in planes, behind the same few functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cbquant import _core
from cbquant._arguments import check_shape
from cbquant._buffer import as_bytes
from cbquant._formats import Format, get

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Weights(Protocol):
    """Compressed weights ``[N, K]``, or matrices of them ``[E, N, K]``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """In elements."""

    @property
    def memory(self) -> tuple[NDArray[Any], ...]:
        """The arrays that an output must not overlap."""

    def check_precision(self, precision: str) -> None:
        """A ValueError where products of these weights do not have that precision, which is a known one."""

    def matrix(self, number: int) -> Weights:
        """One of ``[E, N, K]``."""

    def multiply(
        self, x: NDArray[Any], dtype: str, out: NDArray[Any], out_dtype: str, m: int, precision: str, threads: int
    ) -> None:
        """Write ``x[m, K] @ self[N, K].T`` to `out`; arrays and names as C takes them."""


@dataclass(frozen=True)
class BlockWeights:
    """Weights in blocks: contiguous bytes, row after row."""

    raw: NDArray[np.uint8]
    format: Format
    shape: tuple[int, ...]

    @property
    def memory(self) -> tuple[NDArray[Any], ...]:
        return (self.raw,)

    def check_precision(self, precision: str) -> None:
        if self.format.kind == "plain" and precision in ("q8", "q16"):
            name = self.format.name
            raise ValueError(f"precision: {name} has no integer codes, it knows f32 and bf16 only, got {precision!r}")

    def matrix(self, number: int) -> BlockWeights:
        count, *shape = self.shape
        return BlockWeights(self.raw.reshape(count, self.raw.size // count)[number], self.format, tuple(shape))

    def multiply(
        self, x: NDArray[Any], dtype: str, out: NDArray[Any], out_dtype: str, m: int, precision: str, threads: int
    ) -> None:
        n, k = self.shape
        _core.matmul(x, dtype, self.raw, self.format.name, out, out_dtype, m, n, k, precision, threads)


def as_weights(
    w: Any, fmt: str | None, shape: Sequence[int] | None, name: str = "w", axes: tuple[str, ...] = ("N", "K")
) -> Weights:
    """What the arguments of a product name, which has those axes."""
    from cbquant.tensor import QuantTensor, Transposed

    if isinstance(w, Transposed):
        raise TypeError(f"{name}: expected a QuantTensor, got the transpose of one: pass the tensor itself, without .T")
    if isinstance(w, QuantTensor):
        if fmt is not None or shape is not None:
            raise TypeError("fmt, shape: a QuantTensor has its own (a precision is named: precision=...)")
        weights = w._weights()
    else:
        weights = _blocks(w, fmt, shape, name, axes)
    if len(weights.shape) != len(axes):
        raise ValueError(f"{name}: expected {len(axes)} dimensions ({', '.join(axes)}), got shape {weights.shape}")
    return weights


def _blocks(w: Any, fmt: str | None, shape: Sequence[int] | None, name: str, axes: tuple[str, ...]) -> BlockWeights:
    if fmt is None:
        raise TypeError(f"fmt: expected the name of a format, for {name} is no QuantTensor")
    f = get(fmt)
    raw = as_bytes(w, f.name, name)
    if shape is not None:
        return BlockWeights(raw, f, check_shape(f, shape, raw.size, name))
    if raw.ndim != len(axes) or raw.shape[-1] % f.bytes:
        wanted = f"[{', '.join(axes[:-1])}, row bytes] of {f.name}"
        raise ValueError(f"shape: expected ({', '.join(axes)}), for {name} of shape {raw.shape} is no {wanted}")
    return BlockWeights(raw, f, (*raw.shape[:-1], raw.shape[-1] // f.bytes * f.elements))
