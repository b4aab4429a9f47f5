"""The NumPy oracle: every format decoded by the plainest code that is right.

It is written from the description of the block layouts, not from the C sources, and it is slow on purpose:
each class of `cbquant.reference.formats` states one layout and transcribes its formula element by element.
Use it to check a faster decoder, or to read how a format works.

The constants of the grid formats alone are shared with the C library (``cbquant.reference._tables``).
``import cbquant`` does not load this package until it is used.

>>> import numpy as np
>>> from cbquant import reference
>>> block = np.frombuffer(np.float16(0.5).tobytes() + bytes(range(16)), np.uint8)
>>> reference.dequant(block, "q4_0")[:4]
array([-4. , -3.5, -3. , -2.5], dtype=float32)
"""

from __future__ import annotations

from . import formats  # noqa: F401  (importing the folder registers its classes)
from ._dequant import bfloat16_bits, dequant
from .base import BlockFormat, get, names

__all__ = ["BlockFormat", "bfloat16_bits", "dequant", "get", "names"]
