"""cbquant's encoders and ggml's, as calls that can be timed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

import cbquant
from benchmarks.dequant import peers
from benchmarks.machine import touched_memory
from benchmarks.quantize.inputs import DENSE, Floats, draw, importance
from benchmarks.timing import Call
from cbquant import _core
from cbquant._formats import Format
from tests import oracles

#: Without and with an importance matrix.
WITHOUT, WITH = "without importance", "with importance"


def has_encoder(fmt: Format) -> bool:
    """Whether cbquant encodes the format."""
    x = np.ones((1, fmt.elements), np.float32)
    try:
        cbquant.quantize(x, fmt.name, "ones")
    except ValueError as error:
        if "has no encoder" in str(error):
            return False
        raise
    return True


def takes_importance(fmt: Format) -> bool:
    """Whether an importance matrix changes anything."""
    if fmt.needs_imatrix:
        return True
    x, weights = draw(DENSE, 4, 16 * fmt.elements), importance(16 * fmt.elements)
    return not np.array_equal(cbquant.quantize(x, fmt.name), cbquant.quantize(x, fmt.name, weights))


def cases(fmt: Format, k: int) -> Iterable[tuple[str, Floats | None]]:
    """The importance matrices to measure with, and what they are called."""
    if not fmt.needs_imatrix:
        yield WITHOUT, None
    if takes_importance(fmt):
        yield WITH, importance(k)


def room(fmt: Format, x: Floats) -> NDArray[np.uint8]:
    """Memory for the blocks of x, uint8 ``[rows, row bytes]``, used before."""
    rows, k = x.shape
    nbytes = k // fmt.elements * fmt.bytes
    return touched_memory(rows * nbytes).reshape(rows, nbytes)


def own_call(
    fmt: Format, x: Floats, weights: Floats | None, out: NDArray[np.uint8], kernels: str | None = None, threads: int = 1
) -> Call:
    """cbquant's, with a set of kernels; the one in use by default."""
    rows, k = x.shape
    return partial(_core.quantize, x, "f32", fmt.name, out, rows, k, weights, False, threads, kernels)


def ggml_call(fmt: Format, x: Floats, weights: Floats | None, out: NDArray[np.uint8]) -> Call | None:
    """``ggml_quantize_chunk``, of the build that PyPI's pywhispercpp carries; None where it does not know the format.

    A first call has built the tables, which takes some formats seconds. The arrays have to outlive the call.
    """
    if not oracles.Ggml.available() or not oracles.Ggml().knows(fmt.tag):
        return None
    ggml = oracles.Ggml()
    one = np.ones((1, fmt.elements), np.float32)
    ggml.quantize_chunk(fmt.tag, one, one[0])
    rows, k = x.shape
    pointer = None if weights is None else weights.ctypes.data
    return partial(ggml._lib.ggml_quantize_chunk, fmt.tag, x.ctypes.data, out.ctypes.data, 0, rows, k, pointer)


def check_same(fmt: Format, distribution: str, blocks: NDArray[np.uint8], others: NDArray[np.uint8], name: str) -> None:
    """Both have to do the same work: a RuntimeError where bytes differ."""
    if not np.array_equal(blocks, others):
        raise RuntimeError(f"{fmt.name}, {distribution}: {name} and ggml encode the same rows to different bytes")


def ggml_version() -> dict[str, str]:
    """ggml's version, where it is installed."""
    return {name: version for name, version in peers.versions().items() if name == "ggml"}
