"""What a format's class states, and the registry of the classes."""

from __future__ import annotations

import difflib
from typing import ClassVar

import numpy as np

from ._bits import Bytes, Floats

_registry: dict[str, type[BlockFormat]] = {}


class BlockFormat:
    """A block format. A subclass states the size of its block and implements `values`:

    >>> class Negated(BlockFormat, name="example"):
    ...     elements, nbytes = 4, 4
    ...     @classmethod
    ...     def values(cls, blocks):
    ...         return -blocks.astype(np.float32)
    >>> import numpy as np
    >>> Negated.decode(np.array([[0, 1, 2, 3]], np.uint8))
    array([[-0., -1., -2., -3.]], dtype=float32)
    >>> del _registry["example"]

    Attributes
    ----------
    name : str
        The GGUF name in lower case.
    elements, nbytes : int
        Elements and bytes of a block.
    plain : bool
        True for types such as f16, whose blocks are one ordinary number.
    """

    name: ClassVar[str]
    elements: ClassVar[int]
    nbytes: ClassVar[int]
    plain: ClassVar[bool] = False

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: object) -> None:
        """Register the subclass under `name`; a class without a name is a base for others."""
        super().__init_subclass__(**kwargs)
        if name is None:
            return
        if name in _registry:
            raise ValueError(f"name={name!r} is already registered by {_registry[name].__module__}")
        cls.name = name
        _registry[name] = cls

    @classmethod
    def decode(cls, blocks: Bytes) -> Floats:
        """Decode uint8 ``[n, nbytes]`` to float32 ``[n, elements]``; NaN and inf follow IEEE arithmetic.

        Raises
        ------
        TypeError
            `blocks` is not a uint8 ndarray.
        ValueError
            Its shape is not ``[n, nbytes]``.
        """
        if not isinstance(blocks, np.ndarray) or blocks.dtype != np.uint8:
            got = blocks.dtype if isinstance(blocks, np.ndarray) else type(blocks).__name__
            raise TypeError(f"blocks must be a uint8 ndarray, got {got} ({cls.name})")
        if blocks.ndim != 2 or blocks.shape[1] != cls.nbytes:
            raise ValueError(f"blocks must have the shape [n, {cls.nbytes}], got {blocks.shape} ({cls.name})")
        with np.errstate(all="ignore"):
            return cls.values(blocks)

    @classmethod
    def values(cls, blocks: Bytes) -> Floats:
        """The formula: uint8 ``[n, nbytes]`` to float32 ``[n, elements]``, without checks."""
        raise NotImplementedError(f"{cls.__name__} does not implement values()")


def names() -> list[str]:
    """The names of all formats that have a reference decoder, in alphabetical order.

    >>> from cbquant import reference
    >>> [name for name in reference.names() if name.startswith("iq3")]
    ['iq3_s', 'iq3_xxs']
    """
    return sorted(_registry)


def get(name: str) -> type[BlockFormat]:
    """The reference class of the format `name` (upper case is accepted).

    >>> from cbquant import reference
    >>> q6_k = reference.get("q6_k")
    >>> q6_k.elements, q6_k.nbytes
    (256, 210)

    Raises
    ------
    TypeError
        `name` is not a string.
    ValueError
        There is no such format; the message offers close names.
    """
    if not isinstance(name, str):
        raise TypeError(f"fmt must be a str, got {type(name).__name__}")
    if name.lower() in _registry:
        return _registry[name.lower()]
    close = difflib.get_close_matches(name.lower(), _registry, n=3)
    hint = f"; did you mean {', '.join(close)}?" if close else ""
    raise ValueError(f"fmt={name!r} is not a format of cbquant.reference{hint}")
