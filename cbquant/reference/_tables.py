"""The constants of the grid formats. They stand once, in the C sources; here they are only fetched."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray


@functools.cache
def grid(name: str) -> NDArray[Any]:
    """A read-only grid ``[rows, columns]``: ``iq2_xxs_grid``, ``iq2_xs_grid``, ``iq2_s_grid``,
    ``iq3_xxs_grid``, ``iq3_s_grid`` (uint8 magnitudes) or ``iq1_s_grid`` (int8: -1, 0, 1)."""
    from cbquant import _core  # here, so that only the grid formats need the compiled module

    table = np.asarray(_core.table(name))
    table.setflags(write=False)
    return table
