"""The operators of `cbquant.deepseek` in float64 NumPy, by the plainest code that is right.

They are written from the statement of each operator, not from the C sources. Inputs are arrays of any real dtype; every
result is float64, but for indices.

>>> from cbquant.reference import deepseek
>>> deepseek.vector_add([1, 2], [10, 20])
array([11., 22.])
"""

from __future__ import annotations

from ._add import vector_add

__all__ = [
    "vector_add",
]
