"""Weights in planes, which become blocks that only the device knows: decoded and multiplied as those of formats are."""

from __future__ import annotations

from typing import Any

import numpy as np

import cbquant
from cbquant import cuda
from cbquant.gpucheck import _data
from cbquant.gpucheck._correctness import (
    LIMITS,
    compare_decoded,
    judge,
    make_x,
    multiplied,
    product,
)
from cbquant.gpucheck._items import Context

#: One for each kind of blocks, and what the number of the whole tensor is, where there is one.
FORMATS = (
    *((name, "multiplier") for name in ("fp8_e4m3", "fp8_e5m2", "mxint8", "mxfp4", "nf4", "fp4", "nvfp4")),
    ("nvfp4", "divisor"),
)
SHAPES = ((1, 70, 256), (9, 129, 1088), (65, 300, 512))


def check(context: Context, fmt: str, how: str) -> dict[str, Any]:
    """The CPU's bits for each dtype, and products at odd shapes."""
    worst: dict[str, float] = {}
    for m, n, k in SHAPES[:2] if context.small else SHAPES:
        values = np.random.default_rng([m, n]).standard_normal((n, k)).astype(np.float32)
        codes, scales, number = cbquant.planes.quantize(values, fmt, global_scale_is=how)
        tensor = cbquant.QuantTensor.from_planes(fmt, codes, scales, global_scale=number, global_scale_is=how)
        weight = cuda.load(tensor, context.device)
        compare_decoded(context, weight, tensor, f"{n} x {k}")
        w = _data.from_bf16(_data.to_bf16(tensor.dequant())).astype(np.float64)
        for dtype in ("float32", "bfloat16"):
            x, exact = make_x(m, k, dtype, n)
            for precision in LIMITS:
                y = multiplied(context, x, weight, precision, dtype, (m, n))
                judge(
                    y,
                    product(exact, w, precision),
                    dtype,
                    precision,
                    k,
                    f"M={m} N={n} K={k} {dtype} {precision}",
                    worst,
                )
    return {"kernel": cuda.last_kernel(), **worst}
