"""The reference vectors that are part of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_FOLDER = Path(__file__).parent / "vectors"
_ENCODE_ROWS = ("gauss", "ints", "constant", "zeros")  # the rows of `x` in every file


class Case(NamedTuple):
    """Blocks and what they decode to."""

    #: random, raw, scales, pairs or grid
    name: str
    #: uint8 ``[n, block bytes]``
    blocks: NDArray[np.uint8]
    #: float32 ``[n, block elements]``
    f32: NDArray[np.float32]


class EncodeCase(NamedTuple):
    """Rows and the bytes that the reference encoder makes of them."""

    #: gauss, ints, constant, zeros; with an importance matrix gauss_im
    name: str
    #: float32 ``[1, 512]``
    x: NDArray[np.float32]
    #: float32 ``[512]``, or None; formats that need one were given ones where it is None
    imatrix: NDArray[np.float32] | None
    #: uint8 ``[1, row bytes]``
    q: NDArray[np.uint8]


def _load(fmt: str) -> dict[str, NDArray[Any]]:
    if not isinstance(fmt, str):
        raise TypeError(f"fmt must be a str, got {type(fmt).__name__}")
    if fmt not in names():
        raise ValueError(f"fmt={fmt!r} has no vectors; there are vectors for {', '.join(names())}")
    with np.load(_FOLDER / f"{fmt}.npz", allow_pickle=False) as arrays:
        return dict(arrays)


def names() -> list[str]:
    """The formats that have vectors: the block formats of GGUF.

    >>> "iq4_xs" in names(), "f32" in names()
    (True, False)
    """
    return sorted(file.stem for file in _FOLDER.glob("*.npz"))


def vectors(fmt: str) -> list[Case]:
    """The decoding cases of a block format, from the package's own files.

    >>> case = vectors("mxfp4")[-1]
    >>> case.name, case.blocks.shape, case.f32.shape
    ('scales', (256, 17), (256, 32))

    Raises
    ------
    TypeError
        `fmt` is not a string.
    ValueError
        It is not a block format.
    """
    arrays = _load(fmt)
    case_of_block = [name.decode() for name in arrays["case"].tolist()]
    cases = []
    for name in dict.fromkeys(case_of_block):
        first, count = case_of_block.index(name), case_of_block.count(name)
        own = slice(first, first + count)
        cases.append(Case(name, arrays["blocks"][own], arrays["f32"][own]))
    return cases


def encode_vectors(fmt: str) -> list[EncodeCase]:
    """The encoding cases of a block format, from the package's own files.

    >>> case = encode_vectors("q8_0")[0]
    >>> case.name, case.x.shape, case.imatrix, case.q.shape
    ('gauss', (1, 512), None, (1, 544))

    Raises
    ------
    TypeError
        `fmt` is not a string.
    ValueError
        It is not a block format.
    """
    arrays = _load(fmt)
    x, q = arrays["x"], arrays["q"]
    cases = [EncodeCase(name, x[n : n + 1], None, q[n : n + 1]) for n, name in enumerate(_ENCODE_ROWS)]
    cases.append(EncodeCase("gauss_im", x[:1], arrays["imatrix"], arrays["q_imatrix"]))
    return cases
