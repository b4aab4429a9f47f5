"""`PlanesTensor`: what `QuantTensor.from_planes` returns."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cbquant._weights import Weights
from cbquant.planes._layout import DIVIDE, Key, Layout
from cbquant.tensor import QuantTensor


class PlanesTensor(QuantTensor):
    """A `QuantTensor` whose codes and scales are in arrays of their own; `QuantTensor.from_planes` makes it.

    It multiplies, decodes and is indexed as any other. Chosen rows are views of the codes; where scales belong to
    tiles of a matrix and the rows are not whole tiles, each gets a copy of its scales. Where scales belong to runs
    of the whole tensor (nf4, fp4), only whole runs can be chosen.

    Examples
    --------
    >>> import cbquant, numpy as np
    >>> codes, scales = np.full((2, 16), 0x21, np.uint8), np.array([[127], [128]], np.uint8)
    >>> t = cbquant.QuantTensor.from_planes("mxfp4", codes, scales)
    >>> t[1].dequant()[:2]
    array([1., 2.], dtype=float32)
    >>> np.shares_memory(t[1].codes, codes)
    True
    """

    __slots__ = ("_layout",)

    _layout: Layout

    def __init__(self, layout: Layout) -> None:
        self._layout, self._format, self._shape = layout, layout.format.name, layout.shape

    def __reduce__(self) -> tuple[Any, ...]:
        return PlanesTensor, (self._layout,)

    @property
    def nbytes(self) -> int:
        """The number of bytes that codes and scales take."""
        return self._layout.nbytes

    @property
    def raw(self) -> NoReturn:
        """Refused: there are no blocks. `codes` and `scales` are the bytes; `cbquant.planes.to_blocks` makes GGUF's
        blocks of mxfp4 and nvfp4."""
        raise AttributeError(
            f"{self._format} has no blocks: its bytes are .codes and .scales "
            "(cbquant.planes.to_blocks makes blocks of mxfp4 and nvfp4)"
        )

    @property
    def codes(self) -> NDArray[np.uint8]:
        """The codes, not copied: ``[..., row bytes]``; of nf4 and fp4 in the shape they came in."""
        return self._layout.codes

    @property
    def scales(self) -> NDArray[Any]:
        """The scales, not copied: ``[..., ceil(N / tile[0]), ceil(K / tile[1])]``, without the axis of N where the
        tensor has none; of nf4 and fp4 in the shape they came in."""
        return self._layout.scales

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns under one scale; of nf4 and fp4 0 and the elements of a block."""
        return self._layout.tile

    @property
    def global_scale(self) -> float | None:
        """What all numbers are multiplied with or divided by (`global_scale_is`); None where there is nothing."""
        return self._layout.global_scale if self._layout.global_op else None

    @property
    def global_scale_is(self) -> str:
        """ "multiplier" or "divisor"."""
        return "divisor" if self._layout.global_op == DIVIDE else "multiplier"

    def dequant(
        self, dtype: DTypeLike = "float32", out: NDArray[Any] | None = None, threads: int | None = None
    ) -> NDArray[Any]:
        """The decoded values; arguments, result and errors are those of `QuantTensor.dequant`."""
        return self._layout.dequant(dtype, out, threads)

    def _choose(self, keys: tuple[Key, ...]) -> PlanesTensor:
        return PlanesTensor(self._layout.choose(keys))

    def _weights(self) -> Weights:
        return self._layout

    def _plain(self) -> None:
        return None

    def _bound(self) -> str:
        return f"share the scales of {self._format}"

    def _bits_per_weight(self) -> float:
        return 8 * self.nbytes / max(self.size, 1)
