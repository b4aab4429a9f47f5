"""Planes as blocks of the device, for tests of kernels that know blocks alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import cbquant
from cbquant._formats import Format
from cbquant.cuda import _planes
from cbquant.planes._tensor import PlanesTensor
from tests.cuda.module import load_module
from tests.cuda.products import Weights, from_bf16, to_bf16

#: One format of planes for each kind of blocks, with what its tensor's number is.
KINDS = [
    ("fp8_e4m3", ""),
    ("fp8_e5m2", ""),
    ("mxint8", ""),
    ("nf4", ""),
    ("fp4", ""),
    ("nvfp4", "multiplier"),
    ("nvfp4", "divisor"),
]


def quantized(fmt: str, how: str, n: int, k: int) -> PlanesTensor:
    """Gaussian rows; a number for the tensor is one whose last bits matter, also to the bfloat16 of a quotient."""
    x = np.random.default_rng(k).standard_normal((n, k)).astype(np.float32)
    p = cbquant.planes.quantize(x, fmt)
    words = {"global_scale": np.float32(12.16152), "global_scale_is": how} if how else {}
    return cbquant.QuantTensor.from_planes(fmt, p.codes, p.scales, **words)  # type: ignore[return-value, arg-type]


def blocks_of(t: PlanesTensor) -> tuple[Format, NDArray[np.uint8]]:
    """What `cbquant.cuda.load` copies to the device."""
    raw, info, _ = _planes.to_blocks(load_module()[0], t)
    return info, raw


def weights_of(t: PlanesTensor) -> Weights:
    info, raw = blocks_of(t)
    values = from_bf16(to_bf16(t.dequant())).astype(np.float64)
    return Weights(info.name, raw.reshape(t.shape[0], -1), values)
